package idempotency.postgres;

/**
 * The result of a request, for adapters.
 *
 * @param claimed the last answer of {@code idem_begin}, null if there was none
 * @param answer of the work, whether kept or not
 * @param ran whether the work has run
 * @param lost whether another worker has the claim
 * @param failure of the work, or of the database
 */
public record Result(Claimed claimed, Answer answer, boolean ran, boolean lost, Exception failure) {
    /**
     * The answer of work.
     *
     * @param verdict null if the answer is not kept, and the work may have had its effect
     * @param failure of work that has answered nevertheless, else null
     * @param withoutWork whether the transaction's work is rolled back before the verdict is recorded
     */
    public record Judged(Answer answer, Verdict verdict, Exception failure, boolean withoutWork) {
        public Judged(Answer answer, Verdict verdict) {
            this(answer, verdict, null, false);
        }

        boolean isRecorded() {
            return verdict == Verdict.KEEP || verdict == Verdict.UNKNOWN;
        }

        /** The reason of an end without an answer. */
        String reason() {
            return "status " + answer.status();
        }
    }
}
