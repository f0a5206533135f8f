package idempotency.postgres;

/** The database can't be asked, or not in time; whether anything was done is known when it is back. */
public class DatabaseAway extends RuntimeException {
    DatabaseAway(Throwable cause) {
        super("the database is away", cause);
    }
}
