#!/usr/bin/env python3
"""A full-text index of the hashes `doc:*` of a Haypile, in SQLite, kept up to date by the change stream.

    search_index.py follow HOST PORT FILE     keeps FILE up to date until it is stopped
    search_index.py search FILE WORDS         prints the keys of the documents with these words

The server needs `change-stream yes`. The index and the place in the stream that it has come to change in one transaction, so
it can be killed at any moment. A record may come twice: what it names is read anew then, which changes nothing. Needs redis-py.
"""

import json
import sqlite3
import sys
import time

import redis

PREFIX = "doc:"
# Whatever these do, it is not to keys that they name.
WHOLE = {"flushall", "flushdb", "swapdb"}


class Lost(Exception):
    """The stream does not go back to where the index is: it is made anew."""


class Index:
    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            """
            CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, id INTEGER);
            CREATE VIRTUAL TABLE IF NOT EXISTS documents USING fts5(key UNINDEXED, text);
            CREATE TABLE IF NOT EXISTS place (history TEXT, number INTEGER);
            """
        )

    def place(self):
        return self.db.execute("SELECT history, number FROM place").fetchone()

    def move(self, history, number):
        self.db.execute("DELETE FROM place")
        self.db.execute("INSERT INTO place VALUES (?, ?)", (history, number))

    def put(self, key, fields):
        found = self.db.execute("SELECT id FROM keys WHERE key = ?", (key,)).fetchone()
        if found:
            self.db.execute("DELETE FROM documents WHERE rowid = ?", found)
            self.db.execute("DELETE FROM keys WHERE key = ?", (key,))
        if fields:
            put = self.db.execute("INSERT INTO documents VALUES (?, ?)", (key, " ".join(fields.values())))
            self.db.execute("INSERT INTO keys VALUES (?, ?)", (key, put.lastrowid))

    def search(self, words):
        found = self.db.execute("SELECT key FROM documents WHERE documents MATCH ? ORDER BY key", (words,))
        return [key for (key,) in found]

    def transaction(self, changes):
        self.db.execute("BEGIN")
        try:
            changes()
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")


def begin(connection, place):
    """Asks for the changes behind a place; returns where they begin."""
    words = ["CHANGES.FOLLOW", "$"]
    if place:
        history, number = place
        words = ["CHANGES.FOLLOW", number, "HISTORY", history]
    connection.send_command(*words, "DB", 0)
    try:
        _, begun = connection.read_response()
    except redis.ResponseError as why:
        # Any other error is one of a moment, or for people.
        if str(why).startswith("GONE"):
            raise Lost(why) from why
        raise
    begun = json.loads(begun)
    return begun["history"], begun["index"]


def make_anew(index, client, place):
    """Fills the index with what is there now: what changes meanwhile is behind the place in the stream."""

    def fill():
        index.db.execute("DELETE FROM documents")
        index.db.execute("DELETE FROM keys")
        for key in client.scan_iter(PREFIX + "*", count=1000, _type="hash"):
            index.put(key, client.hgetall(key))
        index.move(*place)

    index.transaction(fill)


def take(index, client, history, record):
    """Reads anew what a record has changed."""
    if record.get("unsaid") or any(change["op"] in WHOLE for change in record["changes"]):
        raise Lost(f"record {record['index']} is about more than keys that it names")
    # A key that is no text is an object, and not one of those that are indexed.
    keys = {key for change in record["changes"] for key in change["keys"] if isinstance(key, str)}

    def put():
        for key in sorted(key for key in keys if key.startswith(PREFIX)):
            index.put(key, client.hgetall(key) if client.type(key) == "hash" else None)
        index.move(history, record["index"])

    index.transaction(put)


def follow(host, port, path):
    index = Index(path)
    text = {"decode_responses": True, "encoding_errors": "replace"}
    client = redis.Redis(host=host, port=port, **text)
    stream = redis.Redis(host=host, port=port, socket_timeout=60, **text)
    while True:
        connection = None
        try:
            connection = stream.connection_pool.get_connection("CHANGES.FOLLOW")
            place = index.place()
            history, number = begin(connection, place)
            if place is None:
                make_anew(index, client, (history, number))
            while True:
                kind, message = connection.read_response()
                message = json.loads(message)
                if kind == "record":
                    take(index, client, history, message)
                else:
                    history = message.get("history", history)
                    index.transaction(lambda: index.move(history, message["index"]))
        except Lost as why:
            print(f"the index is made anew: {why}", file=sys.stderr)
            index.db.execute("DELETE FROM place")
        except redis.RedisError as why:
            print(f"it is tried again: {why}", file=sys.stderr)
            time.sleep(0.2)
        finally:
            if connection:
                connection.disconnect()
                stream.connection_pool.release(connection)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["follow", host, port, path]:
            follow(host, int(port), path)
        case ["search", path, *words] if words:
            print("\n".join(Index(path).search(" ".join(words))))
        case _:
            sys.exit(__doc__)
