module postgres.example/idempotency/ginidem

go 1.24.0

require (
	github.com/gin-gonic/gin v1.11.0
	postgres.example/idempotency v1.0.0
)

replace postgres.example/idempotency => ../
