package idempotency.postgres.servlet;

/** What to do with a request that has no key. */
public enum MissingKey {
    /** 400. */
    REFUSE,
    /** Runs without a claim. */
    PASS,
    /** Runs under a new key, which the answer names. */
    GENERATE,
    /** Under a key that the server derives from method, target and body: identical requests take effect once within the window. */
    DERIVE
}
