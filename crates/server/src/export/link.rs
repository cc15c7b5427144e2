//! The connection of an export to a server, with errors for people.

use super::replies::text_of;
use crate::remote::Remote;
use haypile_resp::Reply;
use std::io;

/// The connection, with its name for people.
pub struct Link {
    pub remote: Remote,
    pub place: String,
}

impl Link {
    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), String> {
        self.remote.send(words).map_err(|error| self.broken(error))
    }

    pub fn receive(&mut self) -> Result<Reply, String> {
        self.remote.receive().map_err(|error| self.broken(error))
    }

    /// Returns the reply, which is no error.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        let reply = self.try_asking(words)?;
        if reply.is_error() { Err(self.refused(&reply)) } else { Ok(reply) }
    }

    pub fn try_asking(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        self.remote.call(words).map_err(|error| self.broken(error))
    }

    /// Returns the answers of a transaction of so many commands.
    pub fn answers(&mut self, count: usize) -> Result<Vec<Reply>, String> {
        for _ in 0..=count {
            // MULTI, then the queued commands.
            let reply = self.receive()?;
            if reply.is_error() {
                return Err(self.refused(&reply));
            }
        }
        match self.receive()? {
            Reply::Array(answers) if answers.len() == count => Ok(answers),
            reply if reply.is_error() => Err(self.refused(&reply)),
            _ => Err(self.strange("EXEC")),
        }
    }

    pub fn broken(&self, error: io::Error) -> String {
        format!("The connection to {} broke: {error}.", self.place)
    }

    pub fn refused(&self, reply: &Reply) -> String {
        format!("The server {} refuses: {}", self.place, text_of(reply))
    }

    pub fn strange(&self, command: &str) -> String {
        format!("The server {} answers {command} as Redis does not.", self.place)
    }
}
