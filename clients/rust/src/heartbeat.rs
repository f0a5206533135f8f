//! Extends a lease while its holder works.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Called once, when the lease is lost.
type OnLost = Box<dyn FnOnce() + Send>;

/// A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease later. A
/// failed beat does not tell who owns the claim, so the work continues until the lease may have expired. The
/// monotonic clock counts that from the moment at which the last successful request was sent, so never longer
/// than the server counts. Then, or when the server reports the claim as lost, `lost` is cancelled.
pub(crate) struct Heart {
    pub lost: CancellationToken,
    /// The claim has ended, and there is no lease to lose.
    pub over: CancellationToken,
    /// No beats; the deadline stays.
    quiet: watch::Sender<bool>,
    on_lost: Arc<Mutex<Option<OnLost>>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Heart {
    /// For work without a claim.
    pub fn still() -> Self {
        Self {
            lost: CancellationToken::new(),
            over: CancellationToken::new(),
            quiet: watch::Sender::new(false),
            on_lost: Arc::default(),
            task: None,
        }
    }

    /// `sent` is the time of the request for the claim.
    pub fn start<F>(
        lease: Duration,
        sent: Instant,
        on_lost: OnLost,
        extend: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send,
    {
        let mut heart = Self::still();
        heart.on_lost = Arc::new(Mutex::new(Some(on_lost)));
        let (lost, mut quiet, on_lost) = (heart.lost.clone(), heart.quiet.subscribe(), heart.on_lost.clone());
        let over = heart.over.clone();
        heart.task = Some(tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = beat(lease, sent, &mut quiet, extend) => {}
                () = lost.cancelled() => {} // a step was told
            }
            lose(&lost, &on_lost);
        }));
        heart
    }

    pub fn stop_beating(&self) {
        self.quiet.send_replace(true);
    }

    /// The work runs again.
    pub fn resume(&self) {
        self.quiet.send_replace(false);
    }

    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    pub fn lose(&self) {
        lose(&self.lost, &self.on_lost);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn lose(lost: &CancellationToken, on_lost: &Mutex<Option<OnLost>>) {
    lost.cancel();
    let tell = on_lost.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(tell) = tell {
        tell();
    }
}

/// Returns when the lease is lost.
async fn beat<F>(lease: Duration, sent: Instant, quiet: &mut watch::Receiver<bool>, extend: impl Fn() -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let (mut deadline, mut next) = (sent + lease, sent + lease / 3);
    loop {
        tokio::select! {
            biased;
            () = sleep_until(deadline) => return,
            () = sleep_until(next) => {}
        }
        tokio::select! {
            biased;
            () = sleep_until(deadline) => return,
            // Its sender lives as long as this task.
            _ = quiet.wait_for(|quiet| !quiet) => {}
        }
        let sent = Instant::now();
        tokio::select! {
            biased;
            // A beat that hangs leaves time for others, and does not delay the end.
            () = sleep_until(deadline) => return,
            _ = quiet.wait_for(|quiet| *quiet) => {}
            result = timeout(lease / 6, extend()) => match result {
                Ok(Ok(())) => (deadline, next) = (sent + lease, sent + lease / 3),
                Ok(Err(error)) if error.is_lost() => return,
                _ => next = Instant::now() + lease / 10,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::error::connection_lost;

    const LEASE: Duration = Duration::from_secs(30);

    /// When `lost` is cancelled, in seconds, and how many beats there were.
    async fn lost_after(extend: impl Fn(u32) -> Option<Result<(), Error>> + Send + Sync + 'static) -> (u64, u32) {
        let (beats, told) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (count, telling) = (beats.clone(), told.clone());
        let start = Instant::now();
        let on_lost = Box::new(move || _ = telling.fetch_add(1, SeqCst));
        let heart = Heart::start(LEASE, start, on_lost, move || {
            let answer = extend(count.fetch_add(1, SeqCst) + 1);
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        });
        heart.lost.cancelled().await;
        tokio::task::yield_now().await;
        heart.lose();
        assert_eq!(told.load(SeqCst), 1);
        (start.elapsed().as_secs(), beats.load(SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn beats_that_fail_come_faster_until_the_lease_ends() {
        // At 10, 13, 16, 19, 22, 25, 28 s.
        assert_eq!(lost_after(|_| Some(Err(connection_lost()))).await, (30, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn beats_that_hang_are_given_up() {
        // At 10 s until 15, 18 until 23, 26.
        assert_eq!(lost_after(|_| None).await, (30, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_is_survived() {
        // At 10, 13 s, granted; then at 23, 26, ... and the lease ends 30 s after 13.
        assert_eq!(lost_after(|beat| Some(if beat == 2 { Ok(()) } else { Err(connection_lost()) })).await, (43, 9));
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_so() {
        assert_eq!(lost_after(|_| Some(Err(Error::LeaseLost))).await, (10, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn no_end_of_a_claim_that_is_over() {
        let heart = Heart::start(LEASE, Instant::now(), Box::new(|| {}), || async { Err(connection_lost()) });
        heart.over.cancel();
        tokio::time::sleep(2 * LEASE).await;
        assert!(!heart.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn no_beats_when_quiet_but_an_end() {
        let heart = Heart::start(LEASE, Instant::now(), Box::new(|| {}), || async { unreachable!("a beat") });
        heart.stop_beating();
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert!(!heart.is_lost());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(heart.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn beats_go_on_when_the_work_runs_again() {
        let heart = Heart::start(LEASE, Instant::now(), Box::new(|| {}), || async { Ok(()) });
        heart.stop_beating();
        tokio::time::sleep(Duration::from_secs(20)).await;
        heart.resume();
        tokio::time::sleep(2 * LEASE).await;
        assert!(!heart.is_lost());
    }
}
