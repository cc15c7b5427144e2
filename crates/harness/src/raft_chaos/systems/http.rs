//! The part of HTTP/1.1 that a gateway for JSON needs: POST over one connection that stays, and answers with a length
//! or in chunks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The longest answer that is read.
const BODY_MAX: u64 = 16 << 20;

/// A connection to one server. Behind an error it is of no more use.
pub struct Http {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
}

impl Http {
    pub fn new(stream: TcpStream, host: SocketAddr) -> Http {
        Http { stream: BufReader::new(stream), host }
    }

    /// Posts a body; returns the status and the body of the answer.
    pub fn post(&mut self, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        let host = self.host;
        let length = body.len();
        let request = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| malformed(&first))?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(|_| malformed(&line))?,
                "transfer-encoding" => is_chunked = value.trim() == "chunked",
                _ => {}
            }
        }
        let body = if is_chunked { self.chunks()? } else { self.piece(length)? };
        Ok((status, body))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length = u64::from_str_radix(line.trim(), 16).map_err(|_| malformed(&line))?;
            body.extend(self.piece(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn piece(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > BODY_MAX {
            return Err(malformed("a body that is too long"));
        }
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a line without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.by_ref().take(BODY_MAX).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_string())
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_have_a_length_or_chunks() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").expect("it is read");
            let chunked =
                "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
            stream.write_all(chunked.as_bytes()).expect("it is read");
            let mut requests = Vec::new();
            stream.read_to_end(&mut requests).expect("the client ends");
            requests
        });
        let mut http = Http::new(TcpStream::connect(address).expect("it listens"), address);
        assert_eq!(http.post("/a", "{}").expect("an answer"), (200, b"ab".to_vec()));
        assert_eq!(http.post("/a", "{}").expect("an answer"), (503, b"abc0123456789".to_vec()));
        drop(http);
        let requests = server.join().expect("it does not panic");
        assert!(requests.starts_with(b"POST /a HTTP/1.1\r\n") && requests.ends_with(b"\r\n\r\n{}"));
    }
}
