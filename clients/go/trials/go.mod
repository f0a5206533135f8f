module postgres.example/idempotency/trials

go 1.24.0

require (
	github.com/go-chi/chi/v5 v5.2.3
	github.com/lib/pq v1.10.9
	postgres.example/idempotency v1.0.0
)

replace postgres.example/idempotency => ../
