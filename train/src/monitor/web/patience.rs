//! Connections that are given up when the other side takes nothing for long.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

/// How long a viewer may take nothing while there is something to send.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to wait after the system could not accept a connection.
const RETRY: Duration = Duration::from_millis(200);

/// Accepts connections that end with an error when a write has waited longer than `patience`.
pub(super) struct Impatient {
    listener: TcpListener,
    patience: Duration,
}

impl Impatient {
    pub(super) fn new(listener: TcpListener) -> Impatient {
        Impatient { listener, patience: PATIENCE }
    }
}

impl Listener for Impatient {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (Connection::new(stream, self.patience), address),
                // Too many open files, or a viewer that is gone already.
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A stream whose writes fail when one has waited too long.
pub(super) struct Connection<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    fn new(stream: S, patience: Duration) -> Connection<S> {
        Connection { stream, patience, waiting: None }
    }

    /// Passes on how a write went, and fails one that has waited too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn a_viewer_that_takes_nothing_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut viewer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut impatient = Impatient { listener, patience: Duration::from_millis(100) };
            let (mut connection, _) = impatient.accept().await;
            // A viewer that reads is not, however long that goes on.
            for _ in 0..3 {
                connection.write_all(b"four").await.unwrap();
                viewer.read_exact(&mut [0; 4]).unwrap();
                sleep(Duration::from_millis(80)).await;
            }
            let endless = async {
                loop {
                    connection.write_all(&[0; 1 << 16]).await?;
                }
            };
            let outcome: io::Result<()> = endless.await;
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
