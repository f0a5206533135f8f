package idempotency.postgres.spring;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import idempotency.postgres.Database;
import idempotency.postgres.Idempotency;
import idempotency.postgres.servlet.MissingKey;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.util.unit.DataSize;
import org.springframework.web.method.HandlerMethod;

/** Annotations that make no sense are refused when the service starts. */
class RoutesTest {
    static final class Sound {
        @Idempotent(leased = true, lease = "2s", waitFor = "0s", handlerTimeout = "3s", statuses = "in_progress=425")
        public void leased() {}

        @Idempotent(missingKey = MissingKey.DERIVE, window = "2s", attempts = 1, maxRequestBytes = 0)
        public void derived() {}
    }

    static final class Nonsense {
        @Idempotent(lease = "2s")
        public void leaseWithoutLeased() {}

        @Idempotent(window = "2s")
        public void windowWithoutDerive() {}

        @Idempotent(ttl = "-2s")
        public void negativeTtl() {}

        @Idempotent(attempts = 0)
        public void noAttempts() {}

        @Idempotent(maxAnswerBytes = -2)
        public void negativeSize() {}

        @Idempotent(statuses = "in_progres=425")
        public void unknownOutcome() {}

        @Idempotent(statuses = "mismatch=many")
        public void noStatus() {}

        @Idempotent(keyHeader = "Idempotency Key")
        public void noHeader() {}
    }

    private static Routes routes() {
        Idempotency idempotency = Idempotency.on(new Database() {
            @Override
            public Transaction begin() {
                throw new AssertionError();
            }

            @Override
            public Connection connect() {
                throw new AssertionError();
            }
        }).build();
        DataSize size = DataSize.ofMegabytes(1);
        IdempotencyProperties properties = new IdempotencyProperties(Duration.ofSeconds(10), 0, "Idempotency-Key",
                "Idempotent-Replayed", size, size, Duration.ofSeconds(30));
        return new Routes(idempotency, request -> "acme", properties, List.of(), null);
    }

    @Test
    void nonsenseIsRefused() {
        for (Method method : Nonsense.class.getDeclaredMethods()) {
            assertThrows(IllegalArgumentException.class, () -> routes().filterOf(new HandlerMethod(new Nonsense(), method)),
                    method.getName());
        }
    }

    @Test
    void senseIsNot() {
        for (Method method : Sound.class.getDeclaredMethods()) {
            assertTrue(routes().filterOf(new HandlerMethod(new Sound(), method)).isPresent());
        }
    }
}
