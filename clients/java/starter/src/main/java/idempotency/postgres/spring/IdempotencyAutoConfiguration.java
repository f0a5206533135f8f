package idempotency.postgres.spring;

import com.fasterxml.jackson.databind.ObjectMapper;
import idempotency.postgres.Database;
import idempotency.postgres.Idempotency;
import jakarta.servlet.DispatcherType;
import java.util.List;
import javax.sql.DataSource;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.support.DefaultTransactionDefinition;
import org.springframework.web.method.support.HandlerMethodArgumentResolver;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.RequestMappingInfoHandlerMapping;

/** Default beans, except for {@link PrincipalResolver}: the application must provide that. */
@AutoConfiguration(afterName = {
        "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
        "org.springframework.boot.autoconfigure.jdbc.DataSourceTransactionManagerAutoConfiguration",
        "org.springframework.boot.autoconfigure.orm.jpa.HibernateJpaAutoConfiguration",
        "org.springframework.boot.autoconfigure.jackson.JacksonAutoConfiguration"})
@ConditionalOnBean({DataSource.class, PlatformTransactionManager.class})
@EnableConfigurationProperties(IdempotencyProperties.class)
public class IdempotencyAutoConfiguration {
    /** The application's own bean {@code idempotencyDatabase} may have another isolation level, or another pool. */
    @Bean
    @ConditionalOnMissingBean
    Database idempotencyDatabase(DataSource pool, PlatformTransactionManager transactions) {
        return new SpringDatabase(pool, transactions, new DefaultTransactionDefinition());
    }

    @Bean
    @ConditionalOnMissingBean
    Idempotency idempotency(Database database, IdempotencyProperties properties, ObjectProvider<ObjectMapper> mapper) {
        Idempotency.Builder builder = Idempotency.on(database).databaseTimeout(properties.databaseTimeout());
        mapper.ifUnique(builder::objectMapper);
        return builder.build();
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
    static class Web implements WebMvcConfigurer {
        @Bean
        Routes idempotencyRoutes(Idempotency idempotency, PrincipalResolver principal, IdempotencyProperties properties,
                ObjectProvider<RouteCustomizer> customizers, ObjectProvider<RequestMappingInfoHandlerMapping> mappings) {
            return new Routes(idempotency, principal, properties, customizers.orderedStream().toList(), mappings);
        }

        @Bean
        FilterRegistrationBean<AnnotationFilter> idempotencyFilter(ObjectProvider<RequestMappingInfoHandlerMapping> mappings,
                ObjectProvider<Routes> routes, IdempotencyProperties properties) {
            FilterRegistrationBean<AnnotationFilter> registration =
                    new FilterRegistrationBean<>(new AnnotationFilter(mappings, routes));
            registration.setOrder(properties.filterOrder());
            registration.setDispatcherTypes(DispatcherType.REQUEST);
            return registration;
        }

        @Bean
        FailureObserver idempotencyFailureObserver() {
            return new FailureObserver();
        }

        @Override
        public void addArgumentResolvers(List<HandlerMethodArgumentResolver> resolvers) {
            resolvers.add(new CurrentArguments());
        }
    }
}
