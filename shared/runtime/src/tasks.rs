//! Named tasks, each with an owner and a fate. The only place that starts a tokio task.
//!
//! A [`TaskGroup`] knows the names of the tasks that live in it and in its children, tells them to stop through a token,
//! waits for them, and aborts and names those that did not end. It must not know what a task does.
//! Every actor and server spawns through it; `main` ends the process by calling [`TaskGroup::shutdown`].

mod outcome;

use outcome::{Failure, run};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::HashMap,
    convert::Infallible,
    fmt::{self, Display},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::AbortHandle;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// What a task's error or panic does to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It is logged; everything else goes on.
    Log,
    /// It is logged, kept for [`TaskGroup::failure`], and the whole process is told to shut down: the token of the root
    /// group is cancelled, whichever child the task lived in.
    ShutDown,
}

/// A set of named tasks. Cheap to clone; all clones are one group.
#[derive(Clone)]
pub struct TaskGroup {
    inner: Arc<Group>,
}

struct Group {
    name: Cow<'static, str>,
    parent: Option<Arc<Group>>,
    token: CancellationToken,
    /// Counts the tasks of this group and of all its descendants.
    tracker: TaskTracker,
    /// Set when the deadline of a shutdown has passed: what is spawned from then on is aborted at once.
    swept: AtomicBool,
    registry: Arc<Registry>,
}

/// What all groups under one root share.
struct Registry {
    root: CancellationToken,
    next_id: AtomicU64,
    live: Mutex<HashMap<u64, Live>>,
    failure: Mutex<Option<String>>,
}

struct Live {
    name: Cow<'static, str>,
    group: Arc<Group>,
    /// Absent for the moment between entering the registry and being spawned.
    abort: Option<AbortHandle>,
}

/// One spawned task. Dropping the handle lets the task run on.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    abort: AbortHandle,
}

impl TaskHandle {
    /// Drops the task's future at its next suspension point.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.abort.is_finished()
    }

    /// A guard that aborts the task when dropped: for a task that serves one owner.
    #[must_use]
    pub fn abort_on_drop(self) -> AbortOnDrop {
        AbortOnDrop(self)
    }
}

/// Aborts its task when dropped.
#[derive(Debug)]
pub struct AbortOnDrop(TaskHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Default for TaskGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup").field("name", &self.inner.name).field("live", &self.live()).finish()
    }
}

impl TaskGroup {
    /// A root group with a token of its own.
    #[must_use]
    pub fn new() -> Self {
        let token = CancellationToken::new();
        let registry = Registry {
            root: token.clone(),
            next_id: AtomicU64::new(0),
            live: Mutex::default(),
            failure: Mutex::default(),
        };
        Self { inner: Arc::new(Group::new(Cow::Borrowed(""), None, token, Arc::new(registry))) }
    }

    /// A group inside this one. Its token is cancelled with this group's, and may be cancelled alone; this group's
    /// [`shutdown`](Self::shutdown) waits for its tasks too.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>) -> Self {
        self.child_with_token(name, self.inner.token.child_token())
    }

    /// A group inside this one with a token that its creator cancels: for tasks that must outlive the signal to shut
    /// down until their turn in the order of shutdown has come. This group's shutdown waits for its tasks too.
    #[must_use]
    pub fn child_with_token(&self, name: impl Into<Cow<'static, str>>, token: CancellationToken) -> Self {
        let parent = Some(Arc::clone(&self.inner));
        Self { inner: Arc::new(Group::new(name.into(), parent, token, Arc::clone(&self.inner.registry))) }
    }

    /// Cancelled when this group shall end. Tasks watch it; nothing ends them before the deadline of `shutdown`.
    #[must_use]
    pub fn shutdown_token(&self) -> CancellationToken {
        self.inner.token.clone()
    }

    /// Starts a task. Its error, or its panic, is logged under its name and has the effect that `fate` says.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub fn spawn<F, E>(&self, name: impl Into<Cow<'static, str>>, fate: OnError, future: F) -> TaskHandle
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        let name = name.into();
        let guard = self.enter(name.clone());
        let id = guard.id;
        let registry = Arc::clone(&self.inner.registry);
        let supervised = async move {
            let _guard = guard;
            if let Err(failure) = run(future).await {
                registry.record(&name, fate, failure);
            }
        };
        #[allow(
            clippy::disallowed_methods,
            reason = "the one place where tasks are started, with name and fate"
        )]
        let abort = tokio::spawn(supervised).abort_handle();
        self.remember(id, abort.clone());
        TaskHandle { abort }
    }

    /// Starts a task that cannot fail. A panic is logged and costs nothing else.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn_named<F>(&self, name: impl Into<Cow<'static, str>>, future: F) -> TaskHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(name, OnError::Log, async move {
            future.await;
            Ok::<(), Infallible>(())
        })
    }

    /// Starts a task whose future is dropped as soon as this group's token is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn_until_shutdown<F>(&self, name: impl Into<Cow<'static, str>>, future: F) -> TaskHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let token = self.shutdown_token();
        self.spawn_named(name, async move {
            // `None` means that the token came first; the end is the same.
            let _ = token.run_until_cancelled(future).await;
        })
    }

    /// How many tasks live in this group and its children.
    #[must_use]
    pub fn live(&self) -> usize {
        self.inner.tracker.len()
    }

    /// The first failure of a task whose fate was [`OnError::ShutDown`], under this group's root; `main` turns it into
    /// the exit code.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.inner.registry.failure.lock().clone()
    }

    /// Cancels the token, waits up to `deadline` for the tasks of this group and its children to end, aborts those that
    /// did not and returns their names (`child/task`), sorted. Empty means that everything ended by itself.
    ///
    /// Must not be awaited from a task of this group: it would wait for itself.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<String> {
        self.inner.token.cancel();
        self.inner.tracker.close();
        if tokio::time::timeout(deadline, self.inner.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let stragglers = self.abort_all();
        if !stragglers.is_empty() {
            tracing::warn!(tasks = ?stragglers, deadline_ms = deadline.as_millis(), "tasks outlived the shutdown and were aborted");
        }
        stragglers
    }

    fn abort_all(&self) -> Vec<String> {
        self.inner.swept.store(true, Ordering::SeqCst);
        // Aborting may drop a future right here, and its guard takes the lock: collect first.
        let (mut names, aborts): (Vec<_>, Vec<_>) = {
            let live = self.inner.registry.live.lock();
            let ours = live.values().filter(|task| task.group.is_within(&self.inner));
            ours.map(|task| (task.group.path_of(&task.name), task.abort.clone())).unzip()
        };
        aborts.into_iter().flatten().for_each(|abort| abort.abort());
        names.sort_unstable();
        names
    }

    fn enter(&self, name: Cow<'static, str>) -> LiveGuard {
        let registry = Arc::clone(&self.inner.registry);
        let id = registry.next_id.fetch_add(1, Ordering::Relaxed);
        registry.live.lock().insert(id, Live { name, group: Arc::clone(&self.inner), abort: None });
        let counted = self.inner.lineage().map(|group| group.tracker.token()).collect();
        LiveGuard { id, registry, _counted: counted }
    }

    fn remember(&self, id: u64, abort: AbortHandle) {
        if let Some(task) = self.inner.registry.live.lock().get_mut(&id) {
            task.abort = Some(abort.clone());
        }
        // A sweep that ran between `enter` and here saw no handle to abort.
        if self.inner.lineage().any(|group| group.swept.load(Ordering::SeqCst)) {
            abort.abort();
        }
    }
}

impl Group {
    fn new(
        name: Cow<'static, str>,
        parent: Option<Arc<Self>>,
        token: CancellationToken,
        registry: Arc<Registry>,
    ) -> Self {
        Self { name, parent, token, tracker: TaskTracker::new(), swept: AtomicBool::new(false), registry }
    }

    /// This group, its parent, and so on up to the root.
    fn lineage(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |group| group.parent.as_deref())
    }

    fn is_within(&self, ancestor: &Self) -> bool {
        self.lineage().any(|group| std::ptr::eq(group, ancestor))
    }

    fn path_of(&self, task: &str) -> String {
        self.lineage()
            .filter(|group| !group.name.is_empty())
            .fold(task.to_owned(), |path, group| format!("{}/{path}", group.name))
    }
}

impl Registry {
    fn record(&self, name: &str, fate: OnError, failure: Failure) {
        let text = match failure {
            Failure::Error(error) => error,
            Failure::Panic(message) => format!("panicked: {message}"),
        };
        match fate {
            OnError::Log => tracing::error!(task = name, error = text, "task failed"),
            OnError::ShutDown => {
                tracing::error!(task = name, error = text, "task failed; shutting down");
                self.failure.lock().get_or_insert_with(|| format!("task `{name}` failed: {text}"));
                self.root.cancel();
            }
        }
    }
}

/// Takes its task out of the books when the task ends in whatever way: return, panic, abort, end of the runtime.
struct LiveGuard {
    id: u64,
    registry: Arc<Registry>,
    _counted: Vec<TaskTrackerToken>,
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        let ended = self.registry.live.lock().remove(&self.id);
        // The entry may hold the last reference to its group: drop it outside the lock.
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn tasks_that_watch_the_token_end_and_nothing_is_named() {
        let group = TaskGroup::new();
        let token = group.shutdown_token();
        group.spawn_named("watcher", async move { token.cancelled().await });
        group.child("inner").spawn_until_shutdown("pending", std::future::pending());
        assert_eq!(group.live(), 2);
        assert_eq!(group.shutdown(LONG).await, Vec::<String>::new());
        assert_eq!(group.live(), 0);
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_is_named_with_its_path_and_aborted() {
        let group = TaskGroup::new();
        let (dropped, seen) = oneshot::channel::<()>();
        group.child("server").child("http").spawn_named("stuck", async move {
            let _held = dropped;
            std::future::pending::<()>().await;
        });
        assert_eq!(group.shutdown(Duration::ZERO).await, ["server/http/stuck"]);
        assert!(seen.await.is_err(), "the aborted task drops what it holds");
    }

    #[tokio::test]
    async fn a_childs_shutdown_leaves_its_siblings_alone() {
        let group = TaskGroup::new();
        let (one, two) = (group.child("one"), group.child("two"));
        one.spawn_until_shutdown("a", std::future::pending());
        two.spawn_until_shutdown("b", std::future::pending());
        assert!(one.shutdown(LONG).await.is_empty());
        assert_eq!((one.live(), two.live(), group.live()), (0, 1, 1));
        assert!(!group.shutdown_token().is_cancelled());
        assert!(group.shutdown(LONG).await.is_empty());
    }

    #[tokio::test]
    async fn an_error_with_fate_log_leaves_the_group_running() {
        let group = TaskGroup::new();
        let task = group.spawn("fails", OnError::Log, async { Err("no luck") });
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!group.shutdown_token().is_cancelled());
        assert_eq!(group.failure(), None);
    }

    #[tokio::test]
    async fn an_error_with_fate_shut_down_in_a_child_cancels_the_root_and_is_kept() {
        let group = TaskGroup::new();
        group.child("deep").spawn("fails", OnError::ShutDown, async { Err("no luck") });
        group.shutdown_token().cancelled().await;
        assert_eq!(group.failure().as_deref(), Some("task `fails` failed: no luck"));
    }

    #[tokio::test]
    async fn a_panic_is_caught_named_and_has_the_fate_of_an_error() {
        let group = TaskGroup::new();
        group.spawn_named("harmless", async { panic!("first") });
        group.spawn("vital", OnError::ShutDown, async {
            let text = String::from("second");
            if !text.is_empty() {
                panic!("{text}");
            }
            Ok::<(), Infallible>(())
        });
        group.shutdown_token().cancelled().await;
        assert_eq!(group.failure().as_deref(), Some("task `vital` failed: panicked: second"));
        assert!(group.shutdown(LONG).await.is_empty());
    }

    #[tokio::test]
    async fn a_child_with_its_own_token_hears_only_its_creator() {
        let group = TaskGroup::new();
        let token = CancellationToken::new();
        let late = group.child_with_token("late", token.clone());
        late.spawn_until_shutdown("task", std::future::pending());
        group.shutdown_token().cancel();
        assert!(!late.shutdown_token().is_cancelled());
        token.cancel();
        assert!(group.shutdown(LONG).await.is_empty());
    }

    #[tokio::test]
    async fn what_is_spawned_after_the_sweep_is_aborted_at_once() {
        let group = TaskGroup::new();
        group.spawn_named("stuck", std::future::pending());
        assert_eq!(group.shutdown(Duration::ZERO).await, ["stuck"]);
        let late = group.child("late").spawn_named("too late", std::future::pending());
        while !late.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn dropping_the_guard_aborts_the_task() {
        let group = TaskGroup::new();
        let task = group.spawn_named("owned", std::future::pending());
        drop(task.clone().abort_on_drop());
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(group.live(), 0);
    }
}
