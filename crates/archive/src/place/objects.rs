//! A bucket of an object store as a place. Connections live on a runtime of its own; whoever asks waits.

use super::{GoesOn, Listed, NextPart, PART_BYTES, Place, PlaceError, TakePart};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt,
    ObjectStoreScheme, PutMode, PutOptions, PutPayload, RetryConfig,
};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long a store may take to answer a request. One that takes a part of 8 MB at less than 70 KB/s is of no use.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a request is tried before its caller hears of it, who tries again as well.
const RETRIES: usize = 3;

/// How soon a caller gets away that wants no answer any more.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

pub struct Objects {
    name: String,
    store: Arc<dyn ObjectStore>,
    root: Path,
    goes_on: GoesOn,
    /// The thread that keeps connections.
    runtime: Runtime,
}

impl Objects {
    /// Checks that an address is that of an object store, and that the store knows the names of the options.
    ///
    /// # Errors
    /// A text for people.
    pub fn check(location: &str, options: &[(String, String)]) -> Result<(), String> {
        let (scheme, _) = scheme_of(location)?;
        options.iter().try_for_each(|(name, _)| {
            let parsed = match scheme {
                ObjectStoreScheme::AmazonS3 => name.parse::<object_store::aws::AmazonS3ConfigKey>().map(drop),
                ObjectStoreScheme::GoogleCloudStorage => name.parse::<object_store::gcp::GoogleConfigKey>().map(drop),
                _ => name.parse::<object_store::azure::AzureConfigKey>().map(drop),
            };
            parsed.map_err(|error| format!("{location}: {error}"))
        })
    }

    /// Opens the bucket of an address. What is needed to log in comes from `options`, and from the environment, under
    /// the names of each vendor (`AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and so
    /// on), or from the machine.
    ///
    /// # Errors
    /// A text for people.
    pub fn open(location: &str, options: &[(String, String)], goes_on: GoesOn) -> Result<Objects, String> {
        // Another user of rustls may have installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused = |error: object_store::Error| format!("{location}: {error}");
        let (scheme, root) = scheme_of(location)?;
        // An object may be long, and whoever takes it slow: what has a bound is the wait for the next bytes.
        let client = ClientOptions::new()
            .with_timeout_disabled()
            .with_config(ClientConfigKey::ReadTimeout, format!("{}s", REQUEST_TIMEOUT.as_secs()))
            .with_connect_timeout(Duration::from_secs(10));
        let retry =
            RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: REQUEST_TIMEOUT };
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let builder = object_store::aws::AmazonS3Builder::from_env().with_url(location);
                let builder = builder.with_client_options(client.clone()).with_retry(retry);
                let builder = options.iter().try_fold(builder, |builder, (name, value)| {
                    Ok::<_, object_store::Error>(builder.with_config(name.parse()?, value))
                });
                Arc::new(builder.and_then(|builder| builder.build()).map_err(refused)?)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env().with_url(location);
                let builder = builder.with_client_options(client.clone()).with_retry(retry);
                let builder = options.iter().try_fold(builder, |builder, (name, value)| {
                    Ok::<_, object_store::Error>(builder.with_config(name.parse()?, value))
                });
                Arc::new(builder.and_then(|builder| builder.build()).map_err(refused)?)
            }
            _ => {
                let builder = object_store::azure::MicrosoftAzureBuilder::from_env().with_url(location);
                let builder = builder.with_client_options(client.clone()).with_retry(retry);
                let builder = options.iter().try_fold(builder, |builder, (name, value)| {
                    Ok::<_, object_store::Error>(builder.with_config(name.parse()?, value))
                });
                Arc::new(builder.and_then(|builder| builder.build()).map_err(refused)?)
            }
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("archive-net").enable_all().build();
        let runtime = runtime.map_err(|error| format!("a runtime cannot start: {error}"))?;
        Ok(Objects { name: location.to_owned(), store, root, goes_on, runtime })
    }

    fn path_of(&self, name: &str) -> Path {
        name.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Returns the name of the object at `path`.
    fn name_of(&self, path: &Path) -> Option<String> {
        let parts = path.prefix_match(&self.root)?;
        Some(parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
    }

    /// Waits for an answer, or until nobody wants it.
    fn wait<R>(
        &self,
        answer: impl Future<Output = Result<R, object_store::Error>>,
        name: &str,
    ) -> Result<R, PlaceError> {
        self.runtime.block_on(async {
            let unwanted = async {
                while self.goes_on.load(Ordering::Acquire) {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
            };
            tokio::select! {
                answer = answer => answer.map_err(|error| failed(name, error)),
                () = unwanted => Err(PlaceError::Failed("it was broken off".into())),
            }
        })
    }
}

const PLACES: &str = "an archive is in a directory, or at s3://, gs:// or az://";

/// Returns the kind of the store of an address, which is S3, Google's or Azure's, and the path in its bucket.
fn scheme_of(location: &str) -> Result<(ObjectStoreScheme, Path), String> {
    let url = location.parse().map_err(|error| format!("{location} is no address: {error}"))?;
    let (scheme, root) = ObjectStoreScheme::parse(&url).map_err(|error| format!("{location}: {error}; {PLACES}"))?;
    match scheme {
        ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure => {
            Ok((scheme, root))
        }
        _ => Err(format!("{location}: {PLACES}")),
    }
}

fn failed(name: &str, error: object_store::Error) -> PlaceError {
    match error {
        object_store::Error::NotFound { .. } => PlaceError::Missing(name.to_owned()),
        object_store::Error::AlreadyExists { .. } => PlaceError::Exists(name.to_owned()),
        error => PlaceError::Failed(format!("{name}: {error}")),
    }
}

impl Place for Objects {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, PlaceError> {
        let (prefix_path, after_path) = (self.path_of(prefix), self.path_of(after));
        let found = match after.is_empty() {
            true => self.store.list(Some(&prefix_path)),
            false => self.store.list_with_offset(Some(&prefix_path), &after_path),
        };
        let found: Vec<_> = self.wait(found.try_collect(), prefix)?;
        let listed = found.into_iter().filter_map(|about| {
            let name = self.name_of(&about.location)?;
            let modified_ms = about.last_modified.timestamp_millis().max(0) as u64;
            (name.as_str() > after).then_some(Listed { name, bytes: about.size, modified_ms })
        });
        let mut listed: Vec<Listed> = listed.collect();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }

    fn put(&self, name: &str, parts: &mut NextPart<'_>) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        let first = parts()?.unwrap_or_default();
        if first.len() < PART_BYTES {
            let payload = PutPayload::from(first);
            return self.wait(self.store.put(&path, payload), name).map(|_| ());
        }
        let mut upload = self.wait(self.store.put_multipart(&path), name)?;
        let mut next = Some(first);
        let sent = loop {
            match next {
                Some(part) => {
                    if let Err(error) = self.wait(upload.put_part(PutPayload::from(part)), name) {
                        break Err(error);
                    }
                }
                None => break self.wait(upload.complete(), name).map(|_| ()),
            }
            match parts() {
                Ok(part) => next = part,
                Err(error) => break Err(error),
            }
        };
        if sent.is_err() {
            // Parts that cannot be removed now are the store's to remove: it has a rule for them.
            let _ = self.wait(upload.abort(), name);
        }
        sent
    }

    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), PlaceError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let path = self.path_of(name);
        self.wait(self.store.put_opts(&path, PutPayload::from(bytes), options), name).map(|_| ())
    }

    fn get(&self, name: &str, take: &mut TakePart<'_>) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        let mut stream = self.wait(self.store.get(&path), name)?.into_stream();
        loop {
            let next = async { stream.next().await.transpose() };
            let part: Option<Bytes> = self.wait(next, name)?;
            match part {
                Some(part) => take(&part)?,
                None => return Ok(()),
            }
        }
    }

    fn get_start(&self, name: &str, bytes: usize) -> Result<Vec<u8>, PlaceError> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..bytes as u64)), ..GetOptions::default() };
        let path = self.path_of(name);
        let answer = async { self.store.get_opts(&path, options).await?.bytes().await };
        match self.wait(answer, name) {
            Ok(bytes) => Ok(bytes.to_vec()),
            // An object without bytes has no range.
            Err(PlaceError::Failed(why)) if why.contains("416 Range Not Satisfiable") => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, name: &str) -> Result<(), PlaceError> {
        match self.wait(self.store.delete(&self.path_of(name)), name) {
            Err(PlaceError::Missing(_)) => Ok(()),
            removed => removed,
        }
    }
}
