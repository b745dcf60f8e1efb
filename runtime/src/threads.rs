//! Threads: a small fork-join team.
//!
//! Guarantees that [`parallel_for`] runs each index once and returns after the last, that it never waits for a thread
//! which has not begun to help, and that a panic in an index reaches the caller with the team still usable.
//! Which thread runs an index is left open; results must not depend on it.
//!
//! Each thread begins with a share of neighbouring indices, by its number, and then takes what others have
//! left: results that one job leaves in the cache of a processor are where the next one reads them.
//!
//! The idea: the caller publishes a job that lies on its own stack, and takes part in it. A worker joins by one
//! compare-and-swap on a word that holds the job's number, the places left and the helpers at work. When the caller
//! finds no more indices it closes the job and waits for the helpers only. Workers spin for a while between jobs, since a
//! fork-join right after another is the common case, and sleep when nothing comes. Where other programs want the
//! processors, workers let them run between two jobs, when no caller waits for them (ADR 47).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{hint, ptr, thread};

use crate::lock::{into_inner, lock};

/// More threads than any one machine; bounded by the bits of [`word`].
const MAX_THREADS: usize = 4096;

/// How long a caller looks out for its last helper before it sleeps, and a worker for the next job if there are more
/// threads than processors.
const SPIN: Duration = Duration::from_micros(40);

/// How long a worker with a processor of its own looks out for the next job: longer than the caller is busy between two
/// calls of a network (ADR 82).
const LOOK_OUT: Duration = Duration::from_micros(200);

/// How long a worker holds its processor before it offers it to other programs.
///
/// Shorter than the time slices of schedulers, which end in the middle of a task, for which the caller then waits some
/// milliseconds; for a worker that gives the processor away between two jobs nobody waits. Long enough that the system
/// call weighs nothing where no other program wants the processor.
const TURN: Duration = Duration::from_millis(1);

/// Shares that the indices of a job are divided into at most; of more threads, several have one.
const MOST_SHARES: usize = 16;

/// The parts of `Team::word`: the job's number, the places left for helpers, whether the caller sleeps, and the number
/// of helpers at work.
mod word {
    pub(super) const HELPER: u64 = 1;
    pub(super) const HELPERS: u64 = (1 << 15) - 1;
    pub(super) const CALLER_SLEEPS: u64 = 1 << 15;
    pub(super) const PLACE: u64 = 1 << 16;
    pub(super) const PLACES: u64 = 0xffff << 16;
    pub(super) const NUMBER_SHIFT: u32 = 32;
}

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// One call of `parallel_for`; lies on the caller's stack.
struct Job {
    body: *const (dyn Fn(usize) + Sync),
    n: usize,
    n_shares: usize,
    /// How many indices of each share are claimed.
    claimed: [Counter; MOST_SHARES],
    /// The payload of the first index that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    fn new(body: *const (dyn Fn(usize) + Sync), n: usize, n_threads: usize) -> Job {
        let claimed = [const { Counter(AtomicUsize::new(0)) }; MOST_SHARES];
        Job { body, n, n_shares: n_threads.clamp(1, MOST_SHARES), claimed, panic: Mutex::new(None) }
    }

    /// The first index of a share, and how many it has.
    fn share(&self, share: usize) -> (usize, usize) {
        let (len, longer) = (self.n / self.n_shares, self.n % self.n_shares);
        (share * len + share.min(longer), len + usize::from(share < longer))
    }

    /// Claims and runs indices until none is left, those of the share of thread `number` first.
    ///
    /// # Safety
    ///
    /// `self.body` points to a live closure.
    unsafe fn work(&self, number: usize) {
        // SAFETY: the caller of this function says so.
        let body = unsafe { &*self.body };
        let run = || {
            for share in (0..self.n_shares).map(|distance| (number + distance) % self.n_shares) {
                let (first, len) = self.share(share);
                // A count passes `len` by at most the number of threads, or `n` after a panic; both are far from
                // overflow unless `n` is nearly `usize::MAX`, more indices than can ever run.
                loop {
                    let at = self.claimed[share].0.fetch_add(1, Relaxed);
                    if at >= len {
                        break;
                    }
                    body(first + at);
                }
            }
        };
        // State that the body leaves half done is the caller's to judge, since it gets the panic.
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(run)) {
            // The job has failed: no more indices are handed out.
            self.claimed.iter().for_each(|claimed| claimed.0.store(self.n, Relaxed));
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(thrown);
            } else {
                // Dropping it may panic again, here where nobody would catch it.
                std::mem::forget(thrown);
            }
        }
    }
}

/// The workers of the process and the place where they find their job.
struct Team {
    /// Whether some caller uses the team.
    is_busy: AtomicBool,
    /// See [`word`].
    word: AtomicU64,
    /// The job; valid while places are left or helpers are at work.
    job: AtomicPtr<Job>,
    /// Workers that sleep, or are about to.
    n_asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake_worker: Condvar,
    wake_caller: Condvar,
    /// Workers that exist; changed by the caller that has the team.
    n_workers: AtomicUsize,
    /// Threads to use, the caller included; 0 before the first question.
    n_threads: AtomicUsize,
}

static TEAM: Team = Team {
    is_busy: AtomicBool::new(false),
    word: AtomicU64::new(0),
    job: AtomicPtr::new(ptr::null_mut()),
    n_asleep: AtomicUsize::new(0),
    sleep: Mutex::new(()),
    wake_worker: Condvar::new(),
    wake_caller: Condvar::new(),
    n_workers: AtomicUsize::new(0),
    n_threads: AtomicUsize::new(0),
};

/// Runs `body(0)`, ..., `body(n - 1)`, each once, on this thread and the workers, and returns when all are done.
///
/// Runs all on this thread if only one thread is to be used, or if the team is busy, as it is for a call from inside
/// a body.
///
/// # Panics
///
/// Panics with what a body threw, after all bodies that had begun are done; the other indices may be left out.
pub fn parallel_for(n: usize, body: &(dyn Fn(usize) + Sync)) {
    let n_helpers = n_threads().min(n).saturating_sub(1);
    if n_helpers == 0 || TEAM.is_busy.swap(true, Acquire) {
        return (0..n).for_each(body);
    }
    let thrown = TEAM.run(n, n_helpers, body);
    TEAM.is_busy.store(false, Release);
    if let Some(thrown) = thrown {
        resume_unwind(thrown);
    }
}

/// The threads that [`parallel_for`] uses, its caller included.
///
/// At first the value of the environment variable `RETAPE_THREADS`, else the parallelism of the machine.
pub fn n_threads() -> usize {
    match TEAM.n_threads.load(Relaxed) {
        0 => first_n_threads(),
        n => n,
    }
}

/// Sets the threads that [`parallel_for`] uses, its caller included; 1 means that all runs on the caller.
pub fn set_n_threads(n: usize) {
    TEAM.n_threads.store(n.clamp(1, MAX_THREADS), Relaxed);
}

#[cold]
fn first_n_threads() -> usize {
    let wanted = std::env::var("RETAPE_THREADS").ok().and_then(|text| text.trim().parse().ok());
    let n = wanted.filter(|&n: &usize| n > 0).unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let n = n.min(MAX_THREADS);
    // Somebody may have set it meanwhile; that value stands.
    TEAM.n_threads.compare_exchange(0, n, Relaxed, Relaxed).err().unwrap_or(n)
}

impl Team {
    /// Runs a job with up to `n_helpers` workers; only the thread that made the team busy may call this.
    fn run(&'static self, n: usize, n_helpers: usize, body: &(dyn Fn(usize) + Sync)) -> Option<Box<dyn Any + Send>> {
        let places = n_helpers.min(self.hire(n_helpers)) as u64;
        // SAFETY: only the lifetime changes. `body` outlives this call, and the job is not used after it: see below.
        let body = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(body)
        };
        let job = Job::new(body, n, n_helpers + 1);

        self.job.store((&raw const job).cast_mut(), Relaxed);
        // Nobody else changes the word now: there are no places to join by and no helpers to leave.
        let number = (self.word.load(Relaxed) >> word::NUMBER_SHIFT).wrapping_add(1);
        self.word.store((number << word::NUMBER_SHIFT) | (places * word::PLACE), Release);
        self.wake(places);

        // SAFETY: `body` is live, being borrowed by this call. The call does not unwind.
        unsafe { job.work(0) };

        // From here on nobody joins; workers that have joined are waited for. Hence no worker uses the job, nor `body`,
        // after this function: a worker reaches them only between its join and its leave.
        self.word.fetch_and(!word::PLACES, Relaxed);
        self.await_helpers();
        self.job.store(ptr::null_mut(), Relaxed);
        into_inner(job.panic)
    }

    /// Starts workers until there are `wanted`, or the system refuses; returns how many there are.
    fn hire(&'static self, wanted: usize) -> usize {
        let mut n_workers = self.n_workers.load(Relaxed);
        while n_workers < wanted {
            let builder = thread::Builder::new().name(format!("retape-{n_workers}"));
            if builder.spawn(move || self.worker(n_workers + 1)).is_err() {
                break;
            }
            n_workers += 1;
            self.n_workers.store(n_workers, Relaxed);
        }
        n_workers
    }

    /// Wakes up to `places` sleeping workers; the job is already published.
    fn wake(&self, places: u64) {
        // Pairs with the fence in `sleep_until_work`: either this thread sees the sleeper, or the sleeper sees the job.
        fence(SeqCst);
        let n_asleep = self.n_asleep.load(Relaxed);
        if n_asleep > 0 {
            // A sleeper holds the lock from its look at the word until it waits, so it does not miss the wake-up.
            drop(lock(&self.sleep));
            for _ in 0..places.min(n_asleep as u64) {
                self.wake_worker.notify_one();
            }
        }
    }

    /// Waits until no helper is at work. The writes of helpers are visible afterwards.
    fn await_helpers(&self) {
        let is_alone = |word: u64| word & word::HELPERS == 0;
        if spin_until(SPIN, || is_alone(self.word.load(Acquire))) {
            return;
        }
        let mut guard = lock(&self.sleep);
        // The last helper that leaves after this sees the flag, and then takes the lock before it wakes: by then this
        // thread waits.
        let mut word = self.word.fetch_or(word::CALLER_SLEEPS, Acquire);
        while !is_alone(word) {
            guard = self.wake_caller.wait(guard).unwrap_or_else(PoisonError::into_inner);
            word = self.word.load(Acquire);
        }
    }

    /// The life of a worker; the caller of a job has number 0.
    fn worker(&self, number: usize) {
        let mut last = 0;
        let mut turn = Instant::now();
        let n_processors = thread::available_parallelism().map_or(1, usize::from);
        loop {
            // At this point the worker is in no job.
            if turn.elapsed() > TURN {
                thread::yield_now();
                turn = Instant::now();
            }
            // A worker joins a job once: a job that it leaves has no indices left.
            let has_work = |word: u64| word & word::PLACES != 0 && word >> word::NUMBER_SHIFT != last;
            let limit = if n_threads() <= n_processors { LOOK_OUT } else { SPIN };
            if !spin_until(limit, || has_work(self.word.load(Relaxed))) {
                self.sleep_until_work(&has_work);
                turn = Instant::now();
            }
            let word = self.word.load(Relaxed);
            if !has_work(word) {
                continue;
            }
            let joined = word - word::PLACE + word::HELPER;
            if self.word.compare_exchange(word, joined, Acquire, Relaxed).is_err() {
                continue;
            }
            last = word >> word::NUMBER_SHIFT;
            self.help(number);
        }
    }

    /// Works on the job that this worker has joined, and leaves.
    fn help(&self, number: usize) {
        let job = self.job.load(Relaxed);
        // SAFETY: the exchange that joined took a place of the published word, and with `Acquire` it sees the pointer
        // stored before that word (later changes of the word are read-modify-writes, which keep the order). The caller
        // keeps the job and its body alive until it sees no helpers, and this worker counts as one until it leaves
        // below. `Job::work` does not unwind.
        unsafe { (*job).work(number) };
        // `Release` publishes what the body wrote. The job is not touched any more.
        let left = self.word.fetch_sub(word::HELPER, Release);
        if left & word::CALLER_SLEEPS != 0 && left & word::HELPERS == word::HELPER {
            drop(lock(&self.sleep));
            self.wake_caller.notify_all();
        }
    }

    /// Sleeps until the word has work; may also wake for nothing.
    fn sleep_until_work(&self, has_work: &dyn Fn(u64) -> bool) {
        let guard = lock(&self.sleep);
        self.n_asleep.fetch_add(1, Relaxed);
        // Pairs with the fence in `wake`.
        fence(SeqCst);
        if !has_work(self.word.load(Relaxed)) {
            drop(self.wake_worker.wait(guard));
        }
        self.n_asleep.fetch_sub(1, Relaxed);
    }
}

/// Spins until `done`, for at most `limit`; returns whether it is done.
fn spin_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    // The clock costs as much as a few looks, and is read once per round.
    const ROUND: usize = 64;
    let mut start = None;
    loop {
        for _ in 0..ROUND {
            if done() {
                return true;
            }
            hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > limit {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serialises the tests: the number of threads is one for the process.
    fn with_threads(n: usize, test: impl FnOnce()) {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = lock(&TURN);
        set_n_threads(n);
        test();
        drop(turn);
    }

    #[test]
    fn shares_cover_the_indices_once() {
        for (n, n_threads) in (0..40).flat_map(|n| (1..20).map(move |n_threads| (n, n_threads))) {
            let job = Job::new(&|_: usize| {}, n, n_threads);
            let mut end = 0;
            for share in 0..job.n_shares {
                let (first, len) = job.share(share);
                assert!(
                    first == end && len <= n.div_ceil(job.n_shares),
                    "share {share} of {n} for {n_threads} threads"
                );
                end += len;
            }
            assert_eq!(end, n);
        }
    }

    /// A thread begins with its own share, and then takes those of others.
    #[test]
    fn a_thread_begins_with_its_share() {
        static SEEN: Mutex<Vec<usize>> = Mutex::new(vec![]);
        let see = |index: usize| lock(&SEEN).push(index);
        let job = Job::new(&see, 10, 2);
        // SAFETY: the body is live.
        unsafe { job.work(3) };
        assert_eq!(*lock(&SEEN), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
    }

    fn squares(n: usize) -> u64 {
        let sum = AtomicU64::new(0);
        parallel_for(n, &|i| {
            sum.fetch_add((i as u64).pow(2), Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn sums_are_equal_for_all_numbers_of_threads() {
        for n_threads in [1, 2, 5] {
            with_threads(n_threads, || {
                assert_eq!(super::n_threads(), n_threads);
                for n in [0, 1, 2, 3, 7, 100, 1000] {
                    let expected = (0..n as u64).map(|i| i * i).sum();
                    assert_eq!(squares(n), expected, "{n} on {n_threads}");
                }
            });
        }
    }

    #[test]
    fn each_index_runs_once_in_many_jobs() {
        let n_jobs = if cfg!(miri) { 20 } else { 5000 };
        with_threads(4, || {
            for job in 0..n_jobs {
                let runs: Vec<AtomicUsize> = (0..job % 9).map(|_| AtomicUsize::new(0)).collect();
                parallel_for(runs.len(), &|i| {
                    runs[i].fetch_add(1, Relaxed);
                });
                assert!(runs.iter().all(|run| run.load(Relaxed) == 1), "job {job}");
                if job % 100 == 0 {
                    // Long enough for the workers to fall asleep.
                    thread::sleep(2 * LOOK_OUT);
                }
            }
        });
    }

    #[test]
    fn indices_run_once_beside_other_threads_that_want_the_processors() {
        /// Ends the other threads, whatever happens.
        struct End<'a>(&'a AtomicBool);

        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }

        with_threads(3, || {
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !is_over.load(Relaxed) {
                            hint::spin_loop();
                        }
                    });
                }
                let _end = End(&is_over);
                // Workers offer their processors several times meanwhile.
                let start = Instant::now();
                while start.elapsed() < 20 * TURN {
                    let runs: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
                    parallel_for(runs.len(), &|i| {
                        runs[i].fetch_add(1, Relaxed);
                    });
                    assert!(runs.iter().all(|run| run.load(Relaxed) == 1), "{runs:?}");
                }
            });
        });
    }

    #[test]
    fn writes_are_visible_to_the_caller() {
        with_threads(3, || {
            let mut cells: Vec<Mutex<usize>> = (0..64).map(|_| Mutex::new(0)).collect();
            parallel_for(64, &|i| *lock(&cells[i]) = i + 1);
            assert!(cells.iter_mut().enumerate().all(|(i, cell)| *cell.get_mut().unwrap() == i + 1));
        });
    }

    #[test]
    fn slow_helpers_are_waited_for() {
        with_threads(3, || {
            let done = AtomicUsize::new(0);
            parallel_for(3, &|_| {
                thread::sleep(Duration::from_millis(5));
                done.fetch_add(1, Relaxed);
            });
            assert_eq!(done.into_inner(), 3);
        });
    }

    #[test]
    fn several_threads_take_part() {
        with_threads(2, || {
            // Each index waits for the other, so it ends only if two threads run them.
            let barrier = std::sync::Barrier::new(2);
            parallel_for(2, &|_| {
                barrier.wait();
            });
        });
    }

    #[test]
    fn nested_calls_run() {
        with_threads(3, || {
            let sum = AtomicUsize::new(0);
            parallel_for(4, &|i| {
                parallel_for(5, &|j| {
                    sum.fetch_add(10 * i + j, Relaxed);
                });
            });
            assert_eq!(sum.into_inner(), 5 * 60 + 4 * 10);
        });
    }

    #[test]
    fn callers_on_several_threads_run() {
        with_threads(3, || {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..50).for_each(|n| assert_eq!(squares(n), (0..n as u64).map(|i| i * i).sum())));
                }
            });
        });
    }

    #[test]
    fn panics_reach_the_caller_and_the_team_goes_on() {
        for n_threads in [1, 3] {
            with_threads(n_threads, || {
                for round in 0..20 {
                    let thrown = catch_unwind(|| parallel_for(8, &|i| assert!(i != round % 8, "index {i}")));
                    let thrown = thrown.unwrap_err();
                    assert_eq!(thrown.downcast_ref::<String>().unwrap(), &format!("index {}", round % 8));
                    assert_eq!(squares(10), 285);
                }
            });
        }
    }

    #[test]
    fn the_number_of_threads_is_bounded() {
        with_threads(0, || assert_eq!(n_threads(), 1));
        with_threads(usize::MAX, || assert_eq!(n_threads(), MAX_THREADS));
    }
}
