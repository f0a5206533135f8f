package idempotency.postgres.spring;

import idempotency.postgres.servlet.MissingKey;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A controller's method that takes effect once for each key. What it does by JdbcTemplate, JdbcClient or JPA
 * commits with its answer; with {@code leased} it has no transaction, and may take a {@link
 * idempotency.postgres.Claim} as a parameter.
 *
 * <p>Durations are written as everywhere in Spring Boot: {@code 30s}, {@code PT30S}. What is left out is as
 * the properties {@code idempotency.*} say, and otherwise the default of {@link
 * idempotency.postgres.servlet.Route}. What an annotation can't say, a {@link RouteCustomizer} does.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface Idempotent {
    /** Work that calls others, under a claim that is committed first and prolonged by heartbeats. */
    boolean leased() default false;

    /** The operation: by default method and pattern, {@code POST /payments/{id}}. */
    String scope() default "";

    MissingKey missingKey() default MissingKey.REFUSE;

    /** How long a derived key counts: by default a day. */
    String window() default "";

    /** Fields of the JSON body that may differ between two sendings. */
    String[] exclude() default {};

    /** How long an answer is replayed: by default as the policy says. */
    String ttl() default "";

    /** How long a leased claim may be silent: by default 30 s. */
    String lease() default "";

    /** How long a repeat waits for a running execution: by default not at all. */
    String waitFor() default "";

    /** {@code {"in_progress=425", "mismatch=400"}}. */
    String[] statuses() default {};

    String keyHeader() default "";

    String replayHeader() default "";

    /** Whether every answer carries the key's header. */
    boolean echoKey() default false;

    /** 1 MiB where it is not said. */
    long maxRequestBytes() default -1;

    /** 1 MiB where it is not said. */
    long maxAnswerBytes() default -1;

    /** Stores the status alone of what is larger, instead of failing. */
    boolean omitLargeAnswers() default false;

    /** How often the method is run when its transaction fails to serialize or loses its connection: 5. */
    int attempts() default -1;

    /** Runs the method while the database is away. It gives up the promise. */
    boolean unprotectedWithoutDatabase() default false;
}
