package idempotency.postgres.spring;

import idempotency.postgres.Idempotency;
import idempotency.postgres.servlet.IdempotencyFilter;
import idempotency.postgres.servlet.Route;
import jakarta.servlet.http.HttpServletRequest;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.convert.DurationStyle;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.web.context.request.async.DeferredResult;
import org.springframework.web.context.request.async.WebAsyncTask;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.HandlerMapping;
import org.springframework.web.servlet.mvc.method.RequestMappingInfoHandlerMapping;
import org.springframework.web.servlet.mvc.method.annotation.ResponseBodyEmitter;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

/** Makes filters from the annotations of methods: all of them when the service starts, so that mistakes show then. */
final class Routes implements SmartInitializingSingleton {
    private static final List<Class<?>> ANSWERS_OF_OTHER_THREADS = List.of(Callable.class, CompletionStage.class,
            DeferredResult.class, WebAsyncTask.class, ResponseBodyEmitter.class, StreamingResponseBody.class);

    private static final int UNSET = -1; // in an annotation

    private final Idempotency idempotency;
    private final PrincipalResolver principal;
    private final IdempotencyProperties properties;
    private final List<RouteCustomizer> customizers;
    private final ObjectProvider<RequestMappingInfoHandlerMapping> mappings;
    private final Map<Target, Optional<IdempotencyFilter>> filters = new ConcurrentHashMap<>();

    private record Target(Class<?> type, Method method) {}

    Routes(Idempotency idempotency, PrincipalResolver principal, IdempotencyProperties properties,
            List<RouteCustomizer> customizers, ObjectProvider<RequestMappingInfoHandlerMapping> mappings) {
        this.idempotency = idempotency;
        this.principal = principal;
        this.properties = properties;
        this.customizers = customizers;
        this.mappings = mappings;
    }

    @Override
    public void afterSingletonsInstantiated() {
        mappings.forEach(mapping -> mapping.getHandlerMethods().values().forEach(this::filterOf));
    }

    /** Nothing if the method has no annotation. */
    Optional<IdempotencyFilter> filterOf(HandlerMethod method) {
        return filters.computeIfAbsent(new Target(method.getBeanType(), method.getMethod()), target -> made(method));
    }

    private Optional<IdempotencyFilter> made(HandlerMethod method) {
        Idempotent wanted = AnnotatedElementUtils.findMergedAnnotation(method.getMethod(), Idempotent.class);
        if (wanted == null) {
            return Optional.empty();
        }
        Class<?> answer = method.getMethod().getReturnType();
        if (ANSWERS_OF_OTHER_THREADS.stream().anyMatch(kind -> kind.isAssignableFrom(answer))) {
            throw new IllegalStateException("@Idempotent: " + method + " answers in another thread than that of its claim");
        }
        if (!wanted.leased() && !wanted.lease().isEmpty()) {
            throw new IllegalArgumentException("@Idempotent(lease): " + method + " is not leased");
        }
        Route route = routeOf(wanted);
        customizers.forEach(customizer -> customizer.customize(route, method));
        return Optional.of(wanted.leased() ? IdempotencyFilter.leased(idempotency, route)
                : IdempotencyFilter.transactional(idempotency, route));
    }

    private Route routeOf(Idempotent wanted) {
        Route route = Route.of(principal::resolve).scope(Routes::methodAndPattern).lease(properties.lease())
                .methods("POST", "PATCH", "PUT", "DELETE") // an annotation on such a method asks for it
                .keyHeader(or(wanted.keyHeader(), properties.keyHeader()))
                .replayHeader(or(wanted.replayHeader(), properties.replayHeader()))
                .maxRequestBytes(or(wanted.maxRequestBytes(), properties.maxRequestBytes().toBytes()))
                .maxAnswerBytes(or(wanted.maxAnswerBytes(), properties.maxAnswerBytes().toBytes()))
                .missingKey(wanted.missingKey()).exclude(wanted.exclude()).echoKey(wanted.echoKey())
                .omitLargeAnswers(wanted.omitLargeAnswers())
                .unprotectedWithoutDatabase(wanted.unprotectedWithoutDatabase());
        if (!wanted.scope().isEmpty()) {
            route.scope(wanted.scope());
        }
        if (wanted.attempts() != UNSET) {
            route.attempts(wanted.attempts());
        }
        span(wanted.window(), route::window);
        span(wanted.ttl(), route::ttl);
        span(wanted.lease(), route::lease);
        span(wanted.waitFor(), route::wait);
        span(wanted.handlerTimeout(), route::handlerTimeout);
        for (String pair : wanted.statuses()) {
            String[] parts = pair.split("=", 2);
            if (parts.length != 2) {
                throw new IllegalArgumentException("@Idempotent(statuses): \"" + pair + "\" is no \"outcome=status\"");
            }
            route.status(parts[0].strip(), Integer.parseInt(parts[1].strip()));
        }
        return route;
    }

    private static String or(String wanted, String otherwise) {
        return wanted.isEmpty() ? otherwise : wanted;
    }

    private static long or(long wanted, long otherwise) {
        return wanted == UNSET ? otherwise : wanted;
    }

    private static void span(String text, Consumer<Duration> option) {
        if (!text.isEmpty()) {
            option.accept(DurationStyle.detectAndParse(text));
        }
    }

    private static String methodAndPattern(HttpServletRequest request) {
        return request.getMethod() + " " + request.getContextPath()
                + request.getAttribute(HandlerMapping.BEST_MATCHING_PATTERN_ATTRIBUTE);
    }
}
