//! Versions and ciphers by the names that OpenSSL gives them, which `redis.conf` uses.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// The ciphers of TLS 1.2, by OpenSSL's names.
const CIPHERS: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// The ciphers of TLS 1.3.
const CIPHERSUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Words of OpenSSL for many ciphers at a time: all that there are belong to each of them.
const ALL: [&str; 3] = ["DEFAULT", "HIGH", "ALL"];

/// The cryptography with the ciphers that `tls-ciphers` and `tls-ciphersuites` name, in their order; empty is all.
///
/// # Errors
/// A text for people that names the directive and the word.
pub fn provider(ciphers: &str, ciphersuites: &str) -> Result<CryptoProvider, String> {
    let mut provider = rustls::crypto::ring::default_provider();
    let of_1_3 = chosen("tls-ciphersuites", ciphersuites, CIPHERSUITES)?;
    let of_1_2 = chosen("tls-ciphers", ciphers, CIPHERS)?;
    let find = |suite: &CipherSuite| provider.cipher_suites.iter().find(|known| known.suite() == *suite).copied();
    let suites: Vec<SupportedCipherSuite> = of_1_3.iter().chain(&of_1_2).filter_map(find).collect();
    provider.cipher_suites = suites;
    Ok(provider)
}

fn chosen(directive: &str, list: &str, known: &[(&str, CipherSuite)]) -> Result<Vec<CipherSuite>, String> {
    let all = || known.iter().map(|(_, suite)| *suite).collect::<Vec<_>>();
    if list.is_empty() {
        return Ok(all());
    }
    let mut chosen = Vec::new();
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let find = |name: &str| known.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, suite)| *suite);
        if let Some(name) = word.strip_prefix('!') {
            // Kinds of ciphers that are taken away, such as MEDIUM, are not there in the first place.
            let taken = find(name);
            chosen.retain(|suite| Some(*suite) != taken);
        } else if ALL.contains(&word) {
            chosen.extend(all());
        } else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let unknown = || format!("{directive}: '{word}' is not there; these are: {}.", names.join(", "));
            chosen.push(find(word).ok_or_else(unknown)?);
        }
    }
    let mut seen = Vec::new();
    chosen.retain(|suite| {
        !seen.contains(suite) && {
            seen.push(*suite);
            true
        }
    });
    Ok(chosen)
}

/// The versions that `tls-protocols` names; empty is all that there are.
///
/// # Errors
/// A text for people that names the word.
pub fn versions(protocols: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for word in protocols.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&rustls::version::TLS13),
            "tlsv1.2" => versions.push(&rustls::version::TLS12),
            "tlsv1" | "tlsv1.1" => {
                return Err(format!(
                    "tls-protocols: {word} is not safe any more, and not there; take TLSv1.2 and TLSv1.3."
                ));
            }
            _ => return Err(format!("tls-protocols: '{word}' is no version; these are: TLSv1.2, TLSv1.3.")),
        }
    }
    if versions.is_empty() {
        versions.extend([&rustls::version::TLS13, &rustls::version::TLS12]);
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_are_chosen_by_the_names_of_openssl() {
        let count = |ciphers, suites| provider(ciphers, suites).map(|provider| provider.cipher_suites.len());
        assert_eq!(count("", ""), Ok(9));
        assert_eq!(count("DEFAULT:!MEDIUM", ""), Ok(9));
        assert_eq!(count("ECDHE-RSA-AES128-GCM-SHA256:ecdhe-rsa-aes256-gcm-sha384", "TLS_AES_128_GCM_SHA256"), Ok(3));
        assert_eq!(count("ALL:!ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"), Ok(6));
        assert!(
            count("RC4-SHA", "").unwrap_err().starts_with("tls-ciphers: 'RC4-SHA' is not there; these are: ECDHE-")
        );
        assert!(count("", "x").unwrap_err().starts_with("tls-ciphersuites: 'x' is not there"));
    }

    #[test]
    fn versions_are_two() {
        assert_eq!(versions("").map(|all| all.len()), Ok(2));
        assert_eq!(versions("TLSv1.3").map(|all| all.len()), Ok(1));
        assert_eq!(versions("tlsv1.2 TLSv1.3").map(|all| all.len()), Ok(2));
        assert!(versions("TLSv1.1").unwrap_err().contains("not safe any more"));
        assert!(versions("SSLv3").unwrap_err().contains("is no version"));
    }
}
