package idempotency.postgres;

/** The database does not answer, or not in time. Whether the request took effect is known only when it is back. */
public class DatabaseAway extends RuntimeException {
    DatabaseAway(Throwable cause) {
        super("the database is away", cause);
    }
}
