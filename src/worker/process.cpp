#include "worker/process.hpp"

#include "core/time.hpp"
#include "core/visible.hpp"

namespace idem::worker {

namespace {

constexpr int kRestartSeconds = 5;

void describe(BackgroundWorker* worker, const char* type, const char* function) {
    memset(worker, 0, sizeof(*worker));
    worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
    strlcpy(worker->bgw_type, type, BGW_MAXLEN);
    strlcpy(worker->bgw_name, type, BGW_MAXLEN);
    strlcpy(worker->bgw_library_name, "idempotency", BGW_MAXLEN);
    strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
}

}  // namespace

void describe_launcher(BackgroundWorker* worker) {
    describe(worker, core::kLauncherType, "idem_launcher_main");
    worker->bgw_restart_time = kRestartSeconds;
}

void describe_sweeper(BackgroundWorker* worker, const SweeperOrder& order) {
    describe(worker, core::kSweeperType, "idem_sweeper_main");
    snprintf(worker->bgw_name, BGW_MAXLEN, "%s for database %u", core::kSweeperType,
             order.database);
    worker->bgw_restart_time = BGW_NEVER_RESTART;
    worker->bgw_notify_pid = MyProcPid;
    memcpy(worker->bgw_extra, &order, sizeof(order));
}

void accept_signals() {
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
}

bool reload_if_asked() {
    if (!ConfigReloadPending) return false;
    ConfigReloadPending = false;
    ProcessConfigFile(PGC_SIGHUP);
    return true;
}

// A negative timeout would wait for ever.
void nap(std::int64_t micros, std::uint32_t wait_event) {
    auto millis = static_cast<long>(Min(Max(micros, 0), core::kDay) / core::kMillisecond + 1);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, millis, wait_event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

}  // namespace idem::worker
