package idempotency.postgres;

/** A record that was due, claimed by a {@link Worker}. Unknown values are null. */
public final class Work {
    private final Hold hold;
    private final Statements.Due due;

    Work(Hold hold, Statements.Due due) {
        this.hold = hold;
        this.due = due;
    }

    /** Its key, scope and principal, and the number of the attempt. */
    public Execution execution() {
        return new Execution(hold.request.key, due.scope(), due.principal(), due.claimed().attempt());
    }

    /** Each claim of a key has a larger one than those before. */
    public long token() {
        return due.claimed().token();
    }

    /** The function of {@code idem_execute}. */
    public String operation() {
        return due.operation();
    }

    public String method() {
        return due.method();
    }

    public String path() {
        return due.path();
    }

    /** The JSON of the request, if the policy of its scope has {@code store_request}. */
    public <T> T request(Class<T> type) {
        return read(due.request(), type);
    }

    /** The last step that an earlier attempt has done. */
    public String recoveryPoint() {
        return due.claimed().recoveryPoint();
    }

    /** The state of the last checkpoint, in JSON. */
    public <T> T state(Class<T> type) {
        return read(due.claimed().state(), type);
    }

    /** Of the last attempt. */
    public String error() {
        return due.claimed().error();
    }

    /**
     * Whether the work must stop: another worker may have the claim, or the worker is aborted. The working thread is
     * interrupted then.
     */
    public boolean isToStop() {
        return hold.heartbeat.isToStop();
    }

    /** Waits until the work must stop, and consumes the interruption that says so. */
    public void awaitStop() throws InterruptedException {
        hold.heartbeat.awaitStop();
    }

    private <T> T read(String json, Class<T> type) {
        return json == null ? null : hold.store.json.read(hold.store.json.tree(json), type);
    }
}
