//! The files under deploy/ stay true: all that they copy, mount and start exists, and their directives are ones that
//! the server takes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Scratch;
use haypile_config::cli::Cli;
use haypile_config::{Loaded, Supervised, load};
use yaml_rust2::{Yaml, YamlLoader};

fn repository(path: &str) -> PathBuf {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    package.join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Reads the configuration that arguments of `haypile` ask for, with directories and files of this machine in place of
/// those named.
#[track_caller]
fn server(arguments: &[String], instead: &[(&str, &Path)]) -> Loaded {
    let here = |argument: &String| match instead.iter().find(|(name, _)| name == argument) {
        Some((_, path)) => path.as_os_str().to_owned(),
        None => OsString::from(argument),
    };
    match Cli::parse(arguments.iter().map(here)) {
        Ok(Cli::Server(line)) => {
            load(&line, &mut std::io::empty()).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
        }
        other => panic!("{arguments:?} starts no server: {other:?}"),
    }
}

/// The lines of a Dockerfile, those that are continued as one, by instruction.
fn instructions(text: &str) -> Vec<(String, String)> {
    let text: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

/// A JSON list of texts without escapes, as Dockerfiles have them.
fn list(text: &str) -> Vec<String> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).expect("a list in brackets");
    inner.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect()
}

#[test]
fn the_dockerfile_builds_and_starts_what_there_is() {
    let lines = instructions(&read("deploy/Dockerfile"));
    let all = |name: &str| -> Vec<&str> {
        lines.iter().filter(|(other, _)| other == name).map(|(_, rest)| rest.as_str()).collect()
    };
    let one = |name: &str| match all(name)[..] {
        [rest] => rest.to_owned(),
        ref others => panic!("{name} is there once, not {others:?}"),
    };
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"')).unwrap();
    assert!(all("FROM")[0].starts_with(&format!("rust:{channel}-")), "the toolchain is the one of rust-toolchain.toml");

    let ignored = read("deploy/Dockerfile.dockerignore");
    let sent: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for copy in all("COPY").iter().filter(|copy| !copy.starts_with("--from")) {
        let words: Vec<&str> = copy.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            assert!(repository(source).exists(), "COPY {copy}: {source} is in the repository");
            assert!(sent.contains(source), "COPY {copy}: {source} is sent to the builder");
        }
    }
    let makefile = read("Makefile");
    assert!(all("RUN").iter().any(|run| run.ends_with(" make build")) && makefile.contains("\nbuild:"));
    assert!(all("COPY").contains(&"--from=build /build/target/release/haypile /usr/local/bin/haypile"));
    assert!(makefile.contains("BIN = target/release/haypile"));
    assert!(one("USER").split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "nobody is root");

    let volume = one("VOLUME");
    let dir = Scratch::new();
    assert_eq!(list(&one("ENTRYPOINT")), ["haypile"]);
    let config = server(&list(&one("CMD")), &[(&volume, &dir.0)]).settings.config();
    assert_eq!(config.dir, dir.0, "the data is in the volume");
    assert_eq!(one("EXPOSE"), config.port.to_string());
    assert!(one("HEALTHCHECK").contains(&format!("redis-cli -p {} PING", config.port)));
    assert!(!config.daemonize && config.logfile.is_none(), "it stays, and its log is the container's");
}

#[test]
fn the_unit_starts_a_server_that_tells_when_it_is_ready() {
    let unit = read("deploy/haypile.service");
    let value = |name: &str| -> Vec<&str> {
        unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
    };
    assert_eq!(value("Type"), ["notify"]);
    let start: Vec<String> = value("ExecStart")[0].split_whitespace().map(str::to_owned).collect();
    let dir = Scratch::new();
    let state = format!("/var/lib/{}", value("StateDirectory")[0]);
    let instead = [("/etc/haypile/haypile.conf", &*repository("haypile.conf")), (&*state, &*dir.0)];
    let loaded = server(&start[1..], &instead);
    let config = loaded.settings.config();
    assert_eq!((config.dir.as_path(), config.supervised, config.daemonize), (&*dir.0, Supervised::Systemd, false));
    assert!(value("LimitNOFILE")[0].parse::<u32>().unwrap() > 2 * config.maxclients);

    // Systemd's own opinion, with a program that is here.
    let file = dir.write("haypile.service", unit.replace("/usr/local/bin/haypile server", "/bin/true server"));
    let verified = Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let verified = verified.expect("systemd-analyze must be installed");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("haypile.service"), "{said}");
}

fn texts(list: &Yaml) -> Vec<String> {
    list.as_vec().expect("a list").iter().map(|item| item.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn the_compose_file_starts_what_there_is() {
    let compose = &YamlLoader::load_from_str(&read("deploy/compose.yaml")).expect("it is YAML")[0];
    let deploy = repository("deploy");
    let haypile = &compose["services"]["haypile"];
    let context = deploy.join(haypile["build"]["context"].as_str().unwrap());
    assert_eq!(context.canonicalize().unwrap(), repository("").canonicalize().unwrap());
    assert!(context.join(haypile["build"]["dockerfile"].as_str().unwrap()).exists());
    let dir = Scratch::new();
    let config = server(&texts(&haypile["command"]), &[("/data", &dir.0)]).settings.config();
    assert_eq!(config.dir, dir.0);
    assert_eq!(texts(&haypile["ports"]), [format!("127.0.0.1:{0}:{0}", config.port)]);
    let limit = haypile["mem_limit"].as_str().unwrap().strip_suffix('g').unwrap().parse::<u64>().unwrap() << 30;
    assert!(config.maxmemory > 0 && limit > config.maxmemory, "the container has room for the budget");

    let services = compose["services"].as_hash().expect("services by name");
    let volumes = compose["volumes"].as_hash().expect("named volumes");
    for (name, service) in services {
        for mount in texts(&service["volumes"]) {
            let source = mount.split(':').next().unwrap();
            let known = if source.starts_with("./") {
                deploy.join(source).exists()
            } else {
                volumes.contains_key(&Yaml::String(source.into()))
            };
            assert!(known, "{name:?} mounts {mount}");
        }
        let image = service["image"].as_str().unwrap();
        assert!(image == "haypile" || image.contains(":v") || image.contains(":1"), "{image} has a version");
    }

    // Prometheus and Grafana look where the other services are.
    let prometheus = &YamlLoader::load_from_str(&read("deploy/prometheus.yml")).expect("it is YAML")[0];
    let targets = texts(&prometheus["scrape_configs"][0]["static_configs"][0]["targets"]);
    assert_eq!(targets, [format!("haypile:{}", config.metrics_port)]);
    assert!(config.metrics_port != 0);
    let source = &YamlLoader::load_from_str(&read("deploy/grafana/datasources.yaml")).expect("it is YAML")[0];
    assert_eq!(source["datasources"][0]["url"].as_str(), Some("http://prometheus:9090"));
    assert!(services.contains_key(&Yaml::String("prometheus".into())));
    let boards = &YamlLoader::load_from_str(&read("deploy/grafana/dashboards.yaml")).expect("it is YAML")[0];
    let folder = boards["providers"][0]["options"]["path"].as_str().expect("a folder");
    let mounts = texts(&compose["services"]["grafana"]["volumes"]);
    assert!(mounts.contains(&format!("./grafana/haypile.json:{folder}/haypile.json:ro")), "{mounts:?}");
}

#[test]
fn the_compose_file_of_replicas_starts_what_there_is() {
    let compose = &YamlLoader::load_from_str(&read("deploy/compose-replicas.yaml")).expect("it is YAML")[0];
    let deploy = repository("deploy");
    let services = compose["services"].as_hash().expect("services by name");
    let volumes = compose["volumes"].as_hash().expect("named volumes");
    let (mut masters, mut replicas, mut sentinels) = (Vec::new(), 0, 0);
    for (name, service) in services {
        let name = name.as_str().expect("a text");
        for mount in texts(&service["volumes"]) {
            let source = mount.split(':').next().expect("it has one");
            let is_volume = volumes.contains_key(&Yaml::String(source.into()));
            assert!(is_volume || source.starts_with("./") && deploy.join(source).exists(), "{name} mounts {mount}");
        }
        if name.starts_with("sentinel-") {
            sentinels += 1;
            continue;
        }
        let dir = Scratch::new();
        let config = server(&texts(&service["command"]), &[("/data", &dir.0)]).settings.config();
        assert_eq!(config.replication.announce_ip, name, "Sentinel finds it by this name");
        match &config.replication.replicaof {
            None => masters.push((name.to_owned(), config.port)),
            Some(master) => {
                replicas += 1;
                assert_eq!(Some(master), masters.first(), "the master comes first");
            }
        }
    }
    assert_eq!((masters.len(), replicas, sentinels), (1, 2, 3));
    let sentinel = read("deploy/sentinel.conf");
    let (host, port) = &masters[0];
    assert!(sentinel.contains(&format!("sentinel monitor haypile {host} {port} 2\n")), "{sentinel}");
    assert!(read("deploy/haypile-sentinel.service").contains("/etc/haypile/sentinel.conf"));
}
