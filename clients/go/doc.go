// Package idempotency puts the PostgreSQL extension of that name in front of HTTP routes, functions
// and message handlers: what arrives twice takes effect once, and every repeat gets the first answer.
//
// A Store is made by the package of a driver, pgxidem or sqlidem. Its methods Transactional and Leased
// are middlewares for net/http; the functions Transactionally, Leased and Once are the same without
// HTTP. A claim lives for the length of a callback, so it can be neither forgotten nor completed
// twice: to return a value completes it, to return an error or to panic ends it, too.
//
// The README describes options, hooks, and what is stored.
package idempotency
