package idempotency.postgres;

import java.time.Duration;

/** Work did not end within its time. It has no cause, since failures of late work do not count. */
public class HandlerLate extends RuntimeException {
    HandlerLate(Duration limit) {
        super("the handler did not answer within " + limit.toMillis() + " ms");
    }
}
