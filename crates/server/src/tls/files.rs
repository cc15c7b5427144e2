//! Certificates, keys and authorities in files (PEM).

use haypile_config::error::os_text;
use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Bytes of a file, at most: all authorities of the world take less.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The certificates of a file, in its order.
///
/// # Errors
/// A text for people that names the file: it cannot be read, or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!("'{}' has no certificate.", path.display())),
        Err(why) => Err(format!("'{}' has no certificate that can be read: {why}", path.display())),
    }
}

/// The key of a file, decrypted by a password if it is encrypted.
///
/// # Errors
/// A text for people that names the file: it cannot be read, has none, or the password is another one.
pub fn key(path: &Path, password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(path)?;
    let shown = path.display();
    if let Some(document) = encrypted_key(&text) {
        let encrypted = EncryptedPrivateKeyInfo::try_from(document.as_bytes());
        let encrypted = encrypted.map_err(|why| format!("The key in '{shown}' cannot be read: {why}"))?;
        let decrypted = encrypted.decrypt(password).map_err(|why| {
            format!(
                "The key in '{shown}' cannot be decrypted: the password may be another one, or its form is ({why})."
            )
        })?;
        return Ok(PrivatePkcs8KeyDer::from(decrypted.as_bytes().to_vec()).into());
    }
    if text.windows(10).any(|window| window == b",ENCRYPTED") {
        return Err(format!(
            "The key in '{shown}' is encrypted in an old way: `openssl pkcs8 -topk8` makes one of PKCS #8 of it."
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|why| format!("'{shown}' has no key that can be read: {why}"))
}

/// The first encrypted key of a file (RFC 5958), which may have other blocks before it.
fn encrypted_key(text: &[u8]) -> Option<SecretDocument> {
    let text = std::str::from_utf8(text).ok()?;
    let block = &text[text.find("-----BEGIN ENCRYPTED PRIVATE KEY-----")?..];
    Some(SecretDocument::from_pem(block).ok()?.1)
}

/// A certificate with those between it and its authority, and its key.
///
/// # Errors
/// A text for people that names the file, or both if they do not go together.
pub fn certified(
    cert: &Path,
    key_file: &Path,
    password: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let (chain, secret) = (certificates(cert)?, key(key_file, password)?);
    let secret = provider.key_provider.load_private_key(secret);
    let secret = secret.map_err(|why| format!("The key in '{}' cannot be used: {why}", key_file.display()))?;
    let certified = CertifiedKey::new(chain, secret);
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(format!("'{}' and '{}' do not go together.", cert.display(), key_file.display()))
        }
        // A certificate that is not understood here, as one of version 1, may be all right for who is shown it.
        _ => Ok(certified),
    }
}

/// Adds the authorities of a file.
///
/// # Errors
/// A text for people that names the file.
pub fn add_roots(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|why| format!("'{}' has an authority that cannot be used: {why}", path.display()))?;
    }
    Ok(())
}

/// Adds the authorities of all files of a directory that have some, as OpenSSL's directories of links do.
///
/// # Errors
/// A text for people that names the directory.
pub fn add_roots_of_dir(dir: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    let fails = |error| format!("'{}' cannot be read: {}", dir.display(), os_text(&error));
    for entry in fs::read_dir(dir).map_err(fails)? {
        let path = entry.map_err(fails)?.path();
        if path.is_file() {
            // Files without a certificate are left out.
            for certificate in certificates(&path).unwrap_or_default() {
                let _ = roots.add(certificate);
            }
        }
    }
    if roots.is_empty() { Err(format!("'{}' has no authority.", dir.display())) } else { Ok(()) }
}

/// Reads a file, but no pipe, which may have no end.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let read = || match fs::metadata(path)? {
        found if !found.is_file() => Err(io::Error::new(ErrorKind::InvalidInput, "It is no file")),
        found if found.len() > FILE_BYTES_MAX => Err(io::Error::new(ErrorKind::FileTooLarge, "It is too large")),
        _ => fs::read(path),
    };
    read().map_err(|error| format!("'{}' cannot be read: {}", path.display(), os_text(&error)))
}
