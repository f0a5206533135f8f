package idempotency.postgres;

/** Another worker may have the claim: the work must have no further effect. */
public class LeaseLost extends RuntimeException {
    LeaseLost() {
        super("the lease of this claim is lost");
    }
}
