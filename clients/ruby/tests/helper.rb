# frozen_string_literal: true

# PGHOST, PGPORT, PGUSER and PGDATABASE name a server with the extension; each run has a database of its own.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "minitest/autorun"
require "minitest/mock"
require "rack/mock"
require "securerandom"
require "timeout"
require "idempotency-postgres"

module Database
  NAME = "idempotency_ruby_#{SecureRandom.hex(6)}"

  module_function

  def create
    admin("CREATE DATABASE #{NAME} TEMPLATE template0 ENCODING 'UTF8'")
    sql("CREATE EXTENSION idempotency")
    sql("CREATE TABLE payment (id bigserial PRIMARY KEY, account text, amount integer)")
    Minitest.after_run { drop }
  end

  # DROP waits 5 s for the sessions that it ends.
  def drop
    admin("SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE datname = '#{NAME}'")
    admin("DROP DATABASE #{NAME} WITH (FORCE)")
  end

  def admin(text)
    PG.connect(dbname: ENV.fetch("PGDATABASE", "postgres")) { |connection| connection.exec(text) }
  end

  # A look at what is stored: rows of values.
  def sql(text, *values)
    @looker ||= PG.connect(dbname: NAME)
    @looker.exec_params(text, values).values
  end

  def connect(&)
    PG.connect(dbname: NAME, connect_timeout: 60, &)
  end
end

Database.create

module Support
  def setup
    super
    @key = SecureRandom.uuid
    @account = "account-#{SecureRandom.hex(4)}"
  end

  def sql(...)
    Database.sql(...)
  end

  def payments
    sql("SELECT count(*) FROM payment WHERE account = $1", @account)[0][0].to_i
  end

  def record(key = @key)
    sql("SELECT status FROM idempotency.records WHERE key = $1", key).dig(0, 0)
  end

  # All of clients but the test's own, in the database of the tests.
  def end_sessions
    others = "FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    sql("SELECT pg_terminate_backend(pid) #{others}", Database::NAME)
    eventually("they have ended") { sql("SELECT count(*) #{others}", Database::NAME) == [["0"]] }
  end

  def eventually(what)
    Timeout.timeout(60) { sleep 0.02 until yield }
  rescue Timeout::Error
    flunk "not in time: #{what}"
  end
end
