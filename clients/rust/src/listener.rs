//! LISTEN on a connection of its own: those of a pool keep notifications to themselves.

use std::{convert::Infallible, fmt, future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket, tls::MakeTlsConnect, tls::TlsStream};

use crate::{Error, error::connection_lost};

/// How often a connection without notifications is looked at: a dead network says nothing.
const LOOK: Duration = Duration::from_secs(10);

type Session = Pin<Box<dyn Future<Output = Result<Infallible, Error>> + Send>>;

/// Begins a session that lasts until its connection is lost.
#[derive(Clone)]
pub(crate) struct Channel(Arc<dyn Fn(Duration, Arc<Notify>) -> Session + Send + Sync>);

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

impl Channel {
    pub fn new<T>(name: &str, config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let listen: Arc<str> = format!("LISTEN \"{}\"", name.replace('"', "\"\"")).into();
        Self(Arc::new(move |within, news| {
            let (listen, config, tls) = (listen.clone(), config.clone(), tls.clone());
            Box::pin(async move {
                let connected = timeout(within, config.connect(tls)).await.map_err(|_| Error::Timeout)?;
                let (client, connection) = connected?;
                tokio::select! {
                    error = notified(connection, &news) => Err(error),
                    result = kept(client, &listen, within, &news) => result,
                }
            })
        }))
    }

    /// Tells of `news`, whenever there may be some, until the connection is lost.
    pub async fn session(&self, within: Duration, news: &Arc<Notify>) -> Error {
        let Err(error) = (self.0)(within, news.clone()).await;
        error
    }
}

/// Returns when the connection has ended.
async fn notified<T>(mut connection: Connection<Socket, T>, news: &Notify) -> Error
where
    T: TlsStream + Unpin,
{
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(_))) => news.notify_one(),
            Some(Ok(_)) => {}
            Some(Err(error)) => return error.into(),
            None => return connection_lost(),
        }
    }
}

async fn kept(client: Client, listen: &str, within: Duration, news: &Notify) -> Result<Infallible, Error> {
    timeout(within, client.batch_execute(listen)).await.map_err(|_| Error::Timeout)??;
    news.notify_one(); // what was told before this is not told again
    loop {
        sleep(LOOK).await;
        timeout(within, client.batch_execute("SELECT 1")).await.map_err(|_| Error::Timeout)??;
    }
}
