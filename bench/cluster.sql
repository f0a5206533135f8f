-- Objects for the contenders on a Citus cluster: a business table with the tenant by which it is
-- distributed, the records colocated with it, and the same work as a distributed function, with a claim and
-- without. Each tenant's payments and records are on one node.
CREATE TABLE bench.tenant_payment (
    tenant   text NOT NULL,
    id       text COLLATE "C" NOT NULL,
    account  bigint NOT NULL,
    amount   bigint NOT NULL,
    currency text NOT NULL DEFAULT 'EUR',
    made_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

SELECT create_distributed_table('bench.tenant_payment', 'tenant', shard_count => 4);
SELECT idem_distribute('bench.tenant_payment');

CREATE FUNCTION bench.pay_bare(tenant text, id text, account bigint, amount bigint)
    RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.tenant_payment (tenant, id, account, amount)
    VALUES (pay_bare.tenant, pay_bare.id, pay_bare.account, pay_bare.amount);
    RETURN 'paid';
END $$;

-- Assignments are expressions, which PL/pgSQL evaluates by itself: nothing is planned.
CREATE FUNCTION bench.pay_once(tenant text, id text, account bigint, amount bigint, answer text)
    RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    claim idem_claim;
    done  boolean;
BEGIN
    claim := idem_begin(pay_once.id, principal => pay_once.tenant, scope => 'bench');
    IF claim.outcome = 'execute' THEN
        INSERT INTO bench.tenant_payment (tenant, id, account, amount)
        VALUES (pay_once.tenant, pay_once.id, pay_once.account, pay_once.amount);
        done := idem_complete(pay_once.id, 201, answer, principal => pay_once.tenant,
                              scope => 'bench');
    END IF;
    RETURN claim.outcome;
END $$;

-- What two calls cost that Citus sends to the tenant's node, whatever they do there.
CREATE FUNCTION bench.do_nothing(tenant text, what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN 'nothing';
END $$;

SELECT create_distributed_function('bench.do_nothing(text, text)', 'tenant', force_delegation => true,
                                   colocate_with => 'bench.tenant_payment');
SELECT create_distributed_function('bench.pay_bare(text, text, bigint, bigint)', 'tenant',
                                   colocate_with => 'bench.tenant_payment'),
       create_distributed_function('bench.pay_once(text, text, bigint, bigint, text)', 'tenant',
                                   colocate_with => 'bench.tenant_payment');
