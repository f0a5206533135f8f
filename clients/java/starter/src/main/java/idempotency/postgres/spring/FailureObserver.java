package idempotency.postgres.spring;

import idempotency.postgres.servlet.Current;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.web.ErrorResponse;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.servlet.HandlerExceptionResolver;
import org.springframework.web.servlet.ModelAndView;

/**
 * Notes exceptions before others turn them into answers: a method that throws has failed, as with {@code
 * @Transactional}.
 */
final class FailureObserver implements HandlerExceptionResolver, Ordered {
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    @Override
    public ModelAndView resolveException(HttpServletRequest request, HttpServletResponse response, Object handler, Exception failure) {
        if (Current.of(request) == null) {
            return null;
        }
        if (isAnswer(failure)) {
            Current.refuse(request, failure);
        } else {
            Current.fail(request, failure);
        }
        return null;
    }

    /** Whether the exception has a status: ResponseStatusException, an ErrorResponse, or by its annotation. */
    private static boolean isAnswer(Exception failure) {
        return failure instanceof ErrorResponse || AnnotatedElementUtils.hasAnnotation(failure.getClass(), ResponseStatus.class);
    }
}
