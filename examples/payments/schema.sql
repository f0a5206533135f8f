-- The schema of the payments demo for a fresh UTF-8 database, loaded by its owner (a superuser, because
-- of CREATE EXTENSION): by the
-- demo, or with
--     psql -X -v ON_ERROR_STOP=1 -f schema.sql DATABASE
CREATE EXTENSION idempotency;

CREATE SCHEMA payments;

CREATE TABLE payments.account (
    tenant   text    NOT NULL,
    customer text    NOT NULL,
    currency text    NOT NULL,
    balance  numeric NOT NULL,
    PRIMARY KEY (tenant, customer, currency)
);

-- On purpose nothing here is unique but the charge itself: if a payment were executed twice, both
-- charges would stand, and the demo's verdict would show them.
CREATE TABLE payments.charge (
    id         text        PRIMARY KEY,
    tenant     text        NOT NULL,
    key        text,
    customer   text        NOT NULL,
    currency   text        NOT NULL,
    amount     numeric     NOT NULL,
    charged_at timestamptz NOT NULL,
    description text
);
CREATE INDEX ON payments.charge (tenant, charged_at);

CREATE TABLE payments.transfer (
    id             text    PRIMARY KEY,
    tenant         text    NOT NULL,
    key            text    NOT NULL,
    amount         numeric NOT NULL,
    currency       text    NOT NULL,
    status         text    NOT NULL DEFAULT 'reserved'
                   CHECK (status IN ('reserved', 'done', 'declined')),
    gateway_charge text
);

-- Events of the type payment.*: the newest of each resource, and each one that was
-- taken. An event taken twice would stand twice.
CREATE TABLE payments.payment_status (
    resource_id text        PRIMARY KEY,
    type        text        NOT NULL,
    updated_at  timestamptz NOT NULL,
    data        jsonb       NOT NULL
);
CREATE TABLE payments.event_log (
    event_id    text        NOT NULL,
    type        text        NOT NULL,
    resource_id text        NOT NULL,
    updated_at  timestamptz NOT NULL,
    applied     boolean     NOT NULL,  -- false: it was older than the known one
    taken_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Clients put the time of sending into the payload, so a retry differs there and nowhere else.
SELECT idem_policy_set('POST /payments',
                       on_missing_key => 'error',
                       exclude_fields => ARRAY['client_sent_at']);

-- A failing handler of events gets three chances, with pauses that grow.
SELECT idem_policy_set('webhooks',
                       max_attempts => 3, retry_base => '100 ms', retry_cap => '2 s');

CREATE VIEW payments.failed_events AS
SELECT key AS event_id, attempt AS attempts, error, next_attempt_at, status = 'exhausted' AS given_up
  FROM idempotency.records
 WHERE scope = 'webhooks' AND status IN ('retryable', 'exhausted');

-- The role the application works as. It gets the protocol functions and no table of the extension.
-- Roles belong to the cluster, so it may be there from an earlier run.
DO $$
BEGIN
    CREATE ROLE payments_app NOLOGIN;
EXCEPTION WHEN duplicate_object THEN
    NULL;
END
$$;
SELECT idem_grant('payments_app');
GRANT USAGE ON SCHEMA payments TO payments_app;
GRANT SELECT, INSERT, UPDATE ON payments.account TO payments_app;
GRANT SELECT, INSERT ON payments.charge TO payments_app;
GRANT SELECT, INSERT, UPDATE ON payments.transfer TO payments_app;
GRANT SELECT, INSERT, UPDATE ON payments.payment_status TO payments_app;
GRANT INSERT ON payments.event_log TO payments_app;
GRANT SELECT ON payments.failed_events TO payments_app;
