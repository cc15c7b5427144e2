//! The sockets that clients connect to, as CONFIG SET exchanges them while the server runs.
//!
//! A setter of `port`, `tls-port` or `bind` opens the new sockets and ends old ones; the accepting thread forgets the
//! ones and accepts from the others, as it is ordered. Nobody waits for that thread, which may be waiting for a setting
//! itself, or have ended. Sockets whose place stays are left alone, and clients that are there stay.

use crate::listen::{self, CannotListen, Listener, Listeners, Place};
use crate::mailbox::Mailbox;
use crate::tls::Tls;
use haypile_config::{Config, Refused, Settings};
use haypile_engine::Engine;
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// An order to the accepting thread.
enum Order {
    /// Accepts from a socket.
    Accept(Option<Place>, Listener),
    /// Forgets the socket of a place, which has ended.
    Forget(Place),
}

/// The orders that the accepting thread has still to carry out.
pub struct Orders(UnboundedReceiver<Order>);

/// The places where the server listens, for whoever changes them.
struct Listening {
    present: Mutex<Vec<Present>>,
    orders: UnboundedSender<Order>,
}

/// A place, and another handle on its socket, which the accepting thread has.
struct Present {
    place: Place,
    socket: TcpListener,
}

/// Has the accepting thread accept from these sockets, and follow the settings.
///
/// # Errors
/// A text for people that names the place.
pub fn start(listeners: &mut Listeners, settings: &Settings) -> Result<Orders, String> {
    let (orders, received) = unbounded_channel();
    let sockets = std::mem::take(&mut listeners.sockets);
    let listening = Listening { present: Mutex::default(), orders };
    let mut present = Vec::new();
    for (place, socket) in sockets {
        match place {
            Some(place) => {
                let handle = handle_of(place, &socket).map_err(|why| why.text)?;
                listening.add(&mut present, handle, socket);
            }
            None => listening.order(Order::Accept(None, socket)),
        }
    }
    *lock(&listening.present) = present;
    settings.listen(move |changed, before, next| {
        let is_ours = |name: &str| ["port", "tls-port", "bind"].contains(&name);
        if changed.iter().any(|directive| is_ours(directive.name)) { listening.change(before, next) } else { Ok(()) }
    });
    Ok(Orders(received))
}

impl Listening {
    fn order(&self, order: Order) {
        // The accepting thread ends with the server.
        let _ = self.orders.send(order);
    }

    /// Listens where a configuration says, and nowhere else.
    ///
    /// # Errors
    /// A place cannot be had; all is as it was before.
    fn change(&self, before: &Config, next: &Config) -> Result<(), Refused> {
        let mut present = lock(&self.present);
        let refused = |CannotListen { directive, text }| {
            tracing::error!("the server listens where it did: {text}");
            let text = match directive {
                "bind" => "Failed to bind to specified addresses.",
                _ => "Unable to listen on this port. Check server logs.",
            };
            Refused { directive: Some(directive), text: text.into() }
        };
        let wanted = listen::places(next).map_err(refused)?;
        let is_wanted = |one: &Present| wanted.iter().any(|(other, _)| *other == one.place);
        let (kept, ended): (Vec<Present>, Vec<Present>) = present.drain(..).partition(is_wanted);
        *present = kept;
        let kept: Vec<Place> = present.iter().map(|one| one.place).collect();
        let missing: Vec<_> = wanted.iter().copied().filter(|(place, _)| !kept.contains(place)).collect();
        let open = || {
            let opened = listen::open_all(&missing, next.tcp_backlog)?;
            let places = kept.iter().copied().chain(opened.iter().map(|(place, _)| *place));
            listen::check_ports(&wanted, &places.collect::<Vec<_>>())?;
            let with_handle = |(place, socket)| Ok((handle_of(place, &socket)?, socket));
            opened.into_iter().map(with_handle).collect::<Result<Vec<(Present, Listener)>, _>>()
        };
        // Clients are refused at no moment, unless new sockets have to wait for the end of old ones.
        let opened = match open() {
            Ok(opened) => {
                self.end(&ended);
                opened
            }
            Err(_) if ended.iter().any(|one| missing.iter().any(|(place, _)| excludes(one.place, *place))) => {
                self.open_instead(&mut present, ended, before.tcp_backlog, open).map_err(refused)?
            }
            Err(why) => {
                present.extend(ended);
                return Err(refused(why));
            }
        };
        opened.into_iter().for_each(|(handle, socket)| self.add(&mut present, handle, socket));
        let places: Vec<Place> = present.iter().map(|one| one.place).collect();
        tracing::info!("the server listens on {}", listen::names_of(&places).join(", "));
        Ok(())
    }

    /// Ends sockets, and opens others after that. If these cannot be opened, the old ones listen again.
    fn open_instead(
        &self,
        present: &mut Vec<Present>,
        ended: Vec<Present>,
        backlog: u32,
        open: impl FnOnce() -> Result<Vec<(Present, Listener)>, CannotListen>,
    ) -> Result<Vec<(Present, Listener)>, CannotListen> {
        // The accepting thread gets these handles if the old sockets have to listen again: there may be no files then.
        let spares = ended.iter().map(|Present { place, socket }| {
            let spare = socket.try_clone().map_err(|error| CannotListen::at(*place, &error));
            spare.map(|spare| listen::listener(*place, spare))
        });
        let spares = match spares.collect::<Result<Vec<Listener>, _>>() {
            Ok(spares) => spares,
            Err(why) => {
                present.extend(ended);
                return Err(why);
            }
        };
        self.end(&ended);
        let opened = open();
        if opened.is_err() {
            for (handle, spare) in ended.into_iter().zip(spares) {
                match listen::again(&handle.socket, backlog) {
                    Ok(()) => self.add(present, handle, spare),
                    Err(error) => tracing::error!("the server does not listen where it did: {error}"),
                }
            }
        }
        opened
    }

    /// Ends sockets, whose places the accepting thread forgets.
    fn end(&self, ended: &[Present]) {
        for Present { place, socket } in ended {
            if let Err(error) = SockRef::from(socket).shutdown(Shutdown::Both) {
                tracing::warn!("a socket that listens cannot be ended: {error}");
            }
            self.order(Order::Forget(*place));
        }
    }

    /// Has the accepting thread accept from a socket, of which this is another handle.
    fn add(&self, present: &mut Vec<Present>, handle: Present, socket: Listener) {
        self.order(Order::Accept(Some(handle.place), socket));
        present.push(handle);
    }
}

/// Returns whether one of the places may have to go before the other can be had: all addresses of a port and one of
/// them exclude each other.
fn excludes(one: Place, other: Place) -> bool {
    one.port() == other.port()
}

/// Returns another handle on the socket of a place.
fn handle_of(place: Place, socket: &Listener) -> Result<Present, CannotListen> {
    let handle = socket.try_clone_tcp().map_err(|error| CannotListen::at(place, &error))?;
    Ok(Present { place, socket: handle })
}

impl Orders {
    /// Accepts clients, as ordered, for ever.
    pub async fn carry_out(mut self, engine: Arc<Engine>, mailboxes: Arc<Vec<Arc<Mailbox>>>, tls: Arc<Tls>) {
        let mut accepting: Vec<(Option<Place>, JoinHandle<()>)> = Vec::new();
        while let Some(order) = self.0.recv().await {
            match order {
                Order::Accept(place, socket) => {
                    let accepts = accept(socket, engine.clone(), mailboxes.clone(), tls.clone());
                    accepting.push((place, tokio::task::spawn_local(accepts)));
                }
                Order::Forget(forgotten) => {
                    let (ended, open) = accepting.into_iter().partition(|(place, _)| *place == Some(forgotten));
                    accepting = open;
                    ended.into_iter().for_each(|(_, task): (Option<Place>, JoinHandle<()>)| task.abort());
                }
            }
        }
    }
}

async fn accept(socket: Listener, engine: Arc<Engine>, mailboxes: Arc<Vec<Arc<Mailbox>>>, tls: Arc<Tls>) {
    let accepted: io::Result<()> = listen::accept(socket, engine, mailboxes, tls).await;
    if let Err(error) = accepted {
        tracing::error!("no more clients can be accepted: {error}");
    }
}

fn lock(present: &Mutex<Vec<Present>>) -> MutexGuard<'_, Vec<Present>> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}
