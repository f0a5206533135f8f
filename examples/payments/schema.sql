-- What the payments demo needs in a fresh UTF-8 database, loaded by its owner (a superuser, because
-- of CREATE EXTENSION): by the player's --schema, or by
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
    line       integer     NOT NULL,  -- the line of requests.jsonl that executed it
    tenant     text        NOT NULL,
    key        text,
    customer   text        NOT NULL,
    currency   text        NOT NULL,
    amount     numeric     NOT NULL,
    charged_at timestamptz NOT NULL
);

-- Clients put the time of sending into the payload, so a retry differs there and nowhere else.
SELECT idem_policy_set('POST /payments',
                       key_required => true,
                       exclude_fields => ARRAY['client_sent_at']);

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
GRANT INSERT ON payments.charge TO payments_app;
