package idempotency.postgres;

/**
 * What became of a request, for adapters.
 *
 * @param claimed what {@code idem_begin} said last, null if nothing
 * @param answer of the work, whether kept or not
 * @param ran whether the work has run
 * @param lost whether somebody else has the claim
 * @param failure of the work, or of the database
 */
public record Verdict(Claimed claimed, Answer answer, boolean ran, boolean lost, Exception failure) {
    /** What work answered, and whether it is to be stored. */
    public record Kept(Answer answer, boolean keep) {}
}
