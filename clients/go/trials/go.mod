module postgres.example/idempotency/trials

go 1.24.0

require (
	github.com/go-chi/chi/v5 v5.2.3
	github.com/jackc/pgx/v5 v5.8.0
	github.com/lib/pq v1.10.9
	gorm.io/driver/postgres v1.6.0
	gorm.io/gorm v1.30.0
	postgres.example/idempotency v1.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/text v0.29.0 // indirect
)

replace postgres.example/idempotency => ../
