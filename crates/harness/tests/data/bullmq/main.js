// Queues of BullMQ, all of whose steps are scripts. Run by libraries.rs with the port as the argument.
"use strict";
const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const { isDeepStrictEqual } = require("node:util");
const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");
const { Redis } = require("ioredis");

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };

// Without it, a promise that is never resolved would leave the process waiting for ever.
setTimeout(() => fail(new Error("it took a minute")), 60_000).unref();
process.on("unhandledRejection", fail);

function fail(error) {
    console.error(error);
    process.exit(1);
}

async function waitFor(name, call, expected) {
    const until = Date.now() + 15_000;
    for (;;) {
        const got = await call();
        if (isDeepStrictEqual(got, expected)) return;
        if (Date.now() > until) assert.deepEqual(got, expected, name);
        await sleep(20);
    }
}

/** Gives a test its own queue, its events and a way to start workers, and closes all of them. */
async function withQueue(name, test) {
    const queue = new Queue(name, { connection });
    const events = new QueueEvents(name, { connection });
    const workers = [];
    const work = (run, options) => {
        const worker = new Worker(name, run, { connection, ...options });
        worker.on("error", fail);
        workers.push(worker);
        return worker;
    };
    await events.waitUntilReady();
    await test(queue, events, work).catch(fail);
    await Promise.all(workers.map((worker) => worker.close()));
    await events.close();
    await queue.close();
}

/** The counts of a queue that are not zero. */
async function counts(queue) {
    return Object.fromEntries(Object.entries(await queue.getJobCounts()).filter(([, count]) => count > 0));
}

async function jobsAndResults() {
    await withQueue("results", async (queue, events, work) => {
        await queue.addBulk(Array.from({ length: 200 }, (_, n) => ({ name: "square", data: { n } })));
        assert.deepEqual(await counts(queue), { waiting: 200 });
        const run = async (job) => {
            await job.updateProgress(50);
            await job.log(`square of ${job.data.n}`);
            return job.data.n * job.data.n;
        };
        for (let n = 0; n < 3; n++) work(run, { concurrency: 10, metrics: { maxDataPoints: 10 } });
        await waitFor("all are completed", () => counts(queue), { completed: 200 });
        const jobs = await queue.getCompleted();
        const squares = jobs.map((job) => job.returnvalue).sort((a, b) => a - b);
        assert.deepEqual(squares, Array.from({ length: 200 }, (_, n) => n * n));
        assert.ok(jobs.every((job) => job.progress === 50 && job.attemptsMade === 1));
        assert.ok(jobs.every((job) => job.finishedOn >= job.processedOn));
        assert.deepEqual((await queue.getJobLogs(jobs[0].id)).logs, [`square of ${jobs[0].data.n}`]);
        const late = await queue.add("square", { n: 12 });
        assert.equal(await late.waitUntilFinished(events, 15_000), 144);
        const gone = await queue.add("square", { n: 1 }, { removeOnComplete: true });
        await gone.waitUntilFinished(events, 15_000);
        assert.equal(await queue.getJob(gone.id), undefined);
        assert.equal((await queue.getMetrics("completed")).meta.count, 202);
        assert.equal((await queue.getWorkers()).length, 3);
        assert.equal((await queue.clean(0, 1000, "completed")).length, 201);
        assert.deepEqual(await counts(queue), {});
    });
}

async function order() {
    await withQueue("order", async (queue, events, work) => {
        for (const priority of [30, 10, 20, 10]) await queue.add("p", { word: `p${priority}` }, { priority });
        for (const word of ["a", "b"]) await queue.add("fifo", { word });
        await queue.add("lifo", { word: "c" }, { lifo: true });
        const last = await queue.add("p", { word: "changed" }, { priority: 1 });
        await last.changePriority({ priority: 40 });
        assert.deepEqual(await counts(queue), { waiting: 3, prioritized: 5 });
        assert.deepEqual(await queue.getCountsPerPriority([0, 10, 40]), { 0: 3, 10: 2, 40: 1 });
        const words = [];
        const worker = work(async (job) => void words.push(job.data.word), { concurrency: 1 });
        await last.waitUntilFinished(events, 15_000);
        assert.deepEqual(words, ["c", "a", "b", "p10", "p10", "p20", "p30", "changed"]);
        await queue.pause();
        const paused = await queue.add("paused", { word: "paused" });
        await sleep(200);
        assert.deepEqual([await queue.isPaused(), words.length], [true, 8]);
        await queue.resume();
        await paused.waitUntilFinished(events, 15_000);
        assert.equal(words.length, 9);
        await worker.close();
        await queue.add("drained", {});
        await queue.add("drained", {}, { delay: 60_000 });
        await queue.drain(true);
        assert.deepEqual(await counts(queue), { completed: 9 });
    });
}

async function delays() {
    await withQueue("delays", async (queue, events, work) => {
        work(async () => Date.now());
        const start = Date.now();
        const job = await queue.add("late", {}, { delay: 1000 });
        const never = await queue.add("never", {}, { delay: 3_600_000 });
        const promoted = await queue.add("promoted", {}, { delay: 3_600_000 });
        assert.deepEqual([await job.getState(), await counts(queue)], ["delayed", { delayed: 3 }]);
        await promoted.promote();
        await promoted.waitUntilFinished(events, 15_000);
        assert.ok((await job.waitUntilFinished(events, 15_000)) - start >= 999);
        await never.remove();
        assert.deepEqual(await counts(queue), { completed: 2 });

        await queue.upsertJobScheduler("tick", { every: 200, limit: 3 }, { name: "tick", data: { own: true } });
        await waitFor("three ticks", () => counts(queue), { completed: 5 });
        const ticks = (await queue.getCompleted()).filter((tick) => tick.name === "tick");
        assert.deepEqual([ticks.length, ticks.every((tick) => tick.data.own)], [3, true]);
        await queue.upsertJobScheduler("cron", { pattern: "0 0 1 1 *" });
        assert.deepEqual(await counts(queue), { completed: 5, delayed: 1 });
        assert.equal((await queue.getJobScheduler("cron")).pattern, "0 0 1 1 *");
        assert.equal(await queue.removeJobScheduler("cron"), true);
        assert.deepEqual(await counts(queue), { completed: 5 });
    });
}

async function failures() {
    await withQueue("failures", async (queue, events, work) => {
        let mended = false;
        work(async (job) => {
            if (job.name === "hopeless") throw new UnrecoverableError("hopeless");
            if (!mended && job.attemptsMade < job.data.failures) throw new Error(`attempt ${job.attemptsMade}`);
            return job.attemptsMade;
        });
        const backoff = { type: "exponential", delay: 50 };
        const third = await queue.add("third", { failures: 2 }, { attempts: 3, backoff });
        assert.equal(await third.waitUntilFinished(events, 15_000), 2);
        const start = Date.now();
        const failed = await queue.add("failed", { failures: 9 }, { attempts: 3, backoff });
        await assert.rejects(failed.waitUntilFinished(events, 15_000), /attempt 2/);
        assert.ok(Date.now() - start >= 149);
        const job = await queue.getJob(failed.id);
        assert.deepEqual([job.attemptsMade, job.failedReason, job.stacktrace.length], [3, "attempt 2", 3]);
        const hopeless = await queue.add("hopeless", {}, { attempts: 5 });
        await assert.rejects(hopeless.waitUntilFinished(events, 15_000), /hopeless/);
        assert.equal((await queue.getJob(hopeless.id)).attemptsMade, 1);
        assert.deepEqual(await counts(queue), { completed: 1, failed: 2 });
        mended = true;
        await job.retry();
        await waitFor("one is retried", () => counts(queue), { completed: 2, failed: 1 });
        await queue.retryJobs({ state: "failed" });
        const attempts = async () => (await queue.getJob(hopeless.id)).attemptsMade;
        await waitFor("the other fails again", attempts, 2);
        await waitFor("the counts", () => counts(queue), { completed: 2, failed: 1 });
    });
}

async function flows() {
    await withQueue("flows", async (queue, events, work) => {
        const flow = new FlowProducer({ connection });
        const child = (n, opts) => ({ name: "leaf", queueName: "flows", data: { n }, opts });
        const tree = (name, children) => ({ name, queueName: "flows", children });
        const { job } = await flow.add(tree("sum", [tree("sum", [child(1), child(2)]), child(3), child(4)]));
        assert.equal(await job.getState(), "waiting-children");
        assert.deepEqual(await counts(queue), { waiting: 4, "waiting-children": 2 });
        work(async (job) => {
            if (job.name === "leaf" && job.data.n < 0) throw new Error("negative");
            if (job.name === "leaf") return job.data.n;
            return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
        }, { concurrency: 4 });
        assert.equal(await job.waitUntilFinished(events, 15_000), 10);
        const { processed, unprocessed } = await job.getDependenciesCount();
        assert.deepEqual([processed, unprocessed], [3, 0]);
        assert.equal((await flow.getFlow({ id: job.id, queueName: "flows" })).children.length, 3);

        const broken = await flow.add(tree("sum", [child(5), child(-1, { failParentOnFailure: true })]));
        await waitFor("a parent fails with its child", () => broken.job.getState(), "failed");
        const ignoring = await flow.add(tree("sum", [child(5), child(-1, { ignoreDependencyOnFailure: true })]));
        assert.equal(await ignoring.job.waitUntilFinished(events, 15_000), 5);
        await waitFor("the counts", () => counts(queue), { completed: 9, failed: 3 });
        await flow.close();
    });
}

async function limits() {
    await withQueue("limits", async (queue, events, work) => {
        const times = [];
        const jobs = Array.from({ length: 7 }, () => ({ name: "limited", data: {} }));
        await queue.addBulk(jobs);
        work(async () => void times.push(Date.now()), { concurrency: 7, limiter: { max: 2, duration: 300 } });
        await waitFor("all are completed", () => counts(queue), { completed: 7 });
        assert.ok(times[6] - times[0] >= 600, `${times}`);
    });
    await withQueue("unique", async (queue, events, work) => {
        const options = { deduplication: { id: "only", ttl: 60_000 } };
        const first = await queue.add("one", { n: 1 }, options);
        assert.equal((await queue.add("one", { n: 2 }, options)).id, first.id);
        await queue.add("named", { n: 3 }, { jobId: "own-id" });
        await queue.add("named", { n: 4 }, { jobId: "own-id" });
        assert.deepEqual([await counts(queue), (await queue.getJob("own-id")).data.n], [{ waiting: 2 }, 3]);
        assert.equal(await queue.getDeduplicationJobId("only"), first.id);
        await queue.removeDeduplicationKey("only");
        assert.notEqual((await queue.add("one", { n: 5 }, options)).id, first.id);
    });
}

/** A worker takes a job and is never heard of again; another one does it when the lock of the first is over. */
async function stalled() {
    await withQueue("stalled", async (queue, events, work) => {
        const job = await queue.add("stalled", {});
        const lost = work(null, { autorun: false, lockDuration: 500 });
        assert.equal((await lost.getNextJob("lost")).id, job.id);
        assert.deepEqual(await counts(queue), { active: 1 });
        let heard = 0;
        events.on("stalled", () => heard++);
        work(async () => "done", { stalledInterval: 300 });
        assert.equal(await job.waitUntilFinished(events, 15_000), "done");
        assert.deepEqual([heard, (await queue.getJob(job.id)).stalledCounter], [1, 1]);
        await queue.obliterate({ force: true });
        const client = new Redis(connection);
        assert.deepEqual(await client.keys("bull:stalled:*"), []);
        await client.quit();
    });
}

async function main() {
    for (const test of [jobsAndResults, order, delays, failures, flows, limits, stalled]) await test();
    console.log("all good");
}

main().catch(fail);
