package trials

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"postgres.example/idempotency"
	"postgres.example/idempotency/internal/try"
	"postgres.example/idempotency/pgxidem"
	"postgres.example/idempotency/sqlidem"
)

// The service of README.md on gorm.

type Booking struct {
	ID     int64
	Amount int
}

// orm is db in the transaction of the claim.
func orm(ctx context.Context, db *gorm.DB) *gorm.DB {
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = sqlidem.Tx(ctx)
	return session
}

func bookings(db *gorm.DB, sqlDB *sql.DB, route idempotency.Route) http.Handler {
	return sqlidem.New(sqlDB).Transactional(route)(idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		booking := Booking{Amount: 100}
		if err := orm(r.Context(), db).Create(&booking).Error; err != nil {
			return err
		}
		if r.Header.Get("Refused") != "" { // after the insert: it is rolled back, and the answer is kept
			return &idempotency.StatusError{Status: 409, Message: "no funds"}
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	}))
}

func TestGorm(t *testing.T) {
	pool := try.Pool(t)
	try.Exec(t, pool, "DROP TABLE IF EXISTS bookings; CREATE TABLE bookings (id bigserial PRIMARY KEY, amount integer)")
	sqlDB, err := sql.Open("postgres", "sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer sqlDB.Close()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: sqlDB}), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	check(t, bookings(db, sqlDB, route(t)), func() (count int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM bookings").Scan(&count); err != nil {
			t.Error(err)
		}
		return count
	})
	if db.Statement.ConnPool != gorm.ConnPool(sqlDB) {
		t.Error("what is not of a claim is in its transaction")
	}
}

// What sqlc writes for pgx.

type DBTX interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	Query(context.Context, string, ...interface{}) (pgx.Rows, error)
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

func New(db DBTX) *Queries { return &Queries{db: db} }

type Queries struct{ db DBTX }

const createBooking = `-- name: CreateBooking :one
INSERT INTO bookings (amount) VALUES ($1) RETURNING id`

func (q *Queries) CreateBooking(ctx context.Context, amount int32) (int64, error) {
	row := q.db.QueryRow(ctx, createBooking, amount)
	var id int64
	err := row.Scan(&id)
	return id, err
}

func TestSqlc(t *testing.T) {
	pool := try.Pool(t)
	try.Exec(t, pool, "DROP TABLE IF EXISTS bookings; CREATE TABLE bookings (id bigserial PRIMARY KEY, amount integer)")
	handler := idempotency.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if _, err := New(pgxidem.Tx(r.Context())).CreateBooking(r.Context(), 100); err != nil {
			return err
		}
		if r.Header.Get("Refused") != "" {
			return &idempotency.StatusError{Status: 409, Message: "no funds"}
		}
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	check(t, pgxidem.New(pool).Transactional(route(t))(handler), func() (count int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM bookings").Scan(&count); err != nil {
			t.Error(err)
		}
		return count
	})
}

// Two sendings of a request that is refused after its insert, and two of one that is not.
func check(t *testing.T, handler http.Handler, count func() int) {
	for _, step := range []struct {
		key, refused, replayed string
		status, count          int
	}{
		{"a", "yes", "", 409, 0}, {"a", "yes", "true", 409, 0}, {"b", "", "", 201, 1}, {"b", "", "true", 201, 1},
	} {
		r := httptest.NewRequest("POST", "/bookings", nil)
		r.Header.Set("Idempotency-Key", step.key)
		r.Header.Set("Refused", step.refused)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != step.status || w.Header().Get("Idempotent-Replayed") != step.replayed || count() != step.count {
			t.Errorf("%+v: %d, replayed %q, %d rows", step, w.Code, w.Header().Get("Idempotent-Replayed"), count())
		}
	}
}
