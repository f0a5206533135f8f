module postgres.example/idempotency/echoidem

go 1.24.0

require (
	github.com/labstack/echo/v4 v4.15.0
	postgres.example/idempotency v1.0.0
)

replace postgres.example/idempotency => ../
