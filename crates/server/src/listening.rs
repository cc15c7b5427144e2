//! The sockets that clients connect to, as CONFIG SET exchanges them while the server runs.
//!
//! Whoever sets `port`, `tls-port` or `bind` opens the new sockets; the accepting thread closes old ones and accepts
//! from new ones, as it is ordered. Sockets whose place stays are left alone, and clients that are there stay.

use crate::listen::{self, CannotListen, Listener, Listeners, Place};
use crate::mailbox::Mailbox;
use crate::tls::Tls;
use haypile_config::{Config, Refused, Settings};
use haypile_engine::Engine;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// An order to the accepting thread.
enum Order {
    /// Accepts from a socket.
    Accept(Option<Place>, Listener),
    /// Closes the sockets of these places, and says so.
    Close(Vec<Place>, std::sync::mpsc::Sender<()>),
}

/// The orders that the accepting thread has still to carry out.
pub struct Orders(UnboundedReceiver<Order>);

/// The places where the server listens, for whoever changes them.
struct Listening {
    places: Mutex<Vec<Place>>,
    orders: UnboundedSender<Order>,
}

/// Has the accepting thread accept from these sockets, and follow the settings.
pub fn start(listeners: &mut Listeners, settings: &Settings) -> Orders {
    let (orders, received) = unbounded_channel();
    let sockets = std::mem::take(&mut listeners.sockets);
    let places = sockets.iter().filter_map(|(place, _)| *place).collect();
    let listening = Listening { places: Mutex::new(places), orders };
    sockets.into_iter().for_each(|(place, socket)| listening.order(Order::Accept(place, socket)));
    settings.listen(move |changed, before, next| {
        let is_ours = |name: &str| ["port", "tls-port", "bind"].contains(&name);
        if changed.iter().any(|directive| is_ours(directive.name)) { listening.change(before, next) } else { Ok(()) }
    });
    Orders(received)
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
        let mut present = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |CannotListen { directive, text }| {
            tracing::error!("the server listens where it did: {text}");
            let text = match directive {
                "bind" => "Failed to bind to specified addresses.",
                _ => "Unable to listen on this port. Check server logs.",
            };
            Refused { directive: Some(directive), text: text.into() }
        };
        let wanted = listen::places(next).map_err(refused)?;
        let is_wanted = |place: &Place| wanted.iter().any(|(other, _)| other == place);
        let (kept, closed): (Vec<Place>, Vec<Place>) = present.iter().partition(|place| is_wanted(place));
        // All addresses of a port and one of them exclude each other, so these go first.
        self.close(&closed);
        let missing: Vec<_> = wanted.iter().copied().filter(|(place, _)| !kept.contains(place)).collect();
        let opened = listen::open_all(&missing, next.tcp_backlog).and_then(|opened| {
            let had: Vec<Place> = kept.iter().copied().chain(opened.iter().map(|(place, _)| *place)).collect();
            listen::check_ports(&wanted, &had).map(|()| (opened, had))
        });
        match opened {
            Ok((opened, had)) => {
                *present = had;
                opened.into_iter().for_each(|(place, socket)| self.order(Order::Accept(Some(place), socket)));
                tracing::info!("the server listens on {}", listen::names_of(&present).join(", "));
                Ok(())
            }
            Err(why) => {
                self.open_again(before, &closed);
                Err(refused(why))
            }
        }
    }

    /// Closes sockets, and waits until they are closed.
    fn close(&self, places: &[Place]) {
        let (done, told) = std::sync::mpsc::channel();
        self.order(Order::Close(places.to_vec(), done));
        // The accepting thread says so, or ends with the server.
        let _ = told.recv();
    }

    fn open_again(&self, before: &Config, places: &[Place]) {
        let was = listen::places(before).unwrap_or_default();
        let again: Vec<_> = was.into_iter().filter(|(place, _)| places.contains(place)).collect();
        match listen::open_all(&again, before.tcp_backlog) {
            Ok(opened) => opened.into_iter().for_each(|(place, socket)| self.order(Order::Accept(Some(place), socket))),
            Err(why) => tracing::error!("the server does not listen where it did: {}", why.text),
        }
    }
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
                Order::Close(places, done) => {
                    let is_closed = |place: &Option<Place>| place.is_some_and(|place| places.contains(&place));
                    let (closed, open) = accepting.into_iter().partition(|(place, _)| is_closed(place));
                    accepting = open;
                    for (_, task) in closed {
                        task.abort();
                        // Its end is that of its socket.
                        let _ = task.await;
                    }
                    let _ = done.send(());
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
