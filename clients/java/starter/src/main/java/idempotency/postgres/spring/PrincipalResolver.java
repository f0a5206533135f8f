package idempotency.postgres.spring;

import jakarta.servlet.http.HttpServletRequest;
import java.security.Principal;

/**
 * The client that a request comes from, by its authentication; null or "" is answered 401. The application has
 * a bean of this type.
 */
@FunctionalInterface
public interface PrincipalResolver {
    String resolve(HttpServletRequest request);

    /** The name that Spring Security, or the container, has authenticated. */
    static PrincipalResolver ofUser() {
        return request -> {
            Principal user = request.getUserPrincipal();
            return user == null ? null : user.getName();
        };
    }
}
