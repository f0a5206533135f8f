-- All objects of an installation, one per line, so that two of them can be compared by diff. What one
-- installation may call otherwise than another (OIDs, places of dropped columns) is left out.
SET search_path = pg_catalog, pg_temp;
CREATE FUNCTION pg_temp.rights(acl aclitem[], kind "char", owner oid) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(format('%s=%s%s', CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, a.privilege_type,
                         CASE WHEN a.is_grantable THEN '*' END), ' ' ORDER BY a.grantee::regrole::text, a.privilege_type)
  FROM aclexplode(coalesce(acl, acldefault(kind, owner))) a $$;
CREATE TEMP VIEW ours AS
SELECT c.oid AS class, o.oid, o.name FROM (VALUES
    ('pg_proc'::regclass, 'p'), ('pg_class', 'c'), ('pg_type', 't')) k (class, kind), LATERAL (
    SELECT oid, oid::regprocedure::text AS name FROM pg_proc
     WHERE k.kind = 'p' AND pronamespace::regnamespace::text <> 'pg_catalog' AND (pronamespace = 'idempotency'::regnamespace OR proname LIKE 'idem\_%')
     UNION ALL
    SELECT oid, oid::regclass::text FROM pg_class
     WHERE k.kind = 'c' AND (relnamespace = 'idempotency'::regnamespace OR relkind = 'c' AND relname LIKE 'idem\_%')) o, pg_class c
 WHERE c.oid = k.class;
SELECT line FROM (
SELECT 'schema ' || nspname || ' owner ' || nspowner::regrole || ' rights ' || pg_temp.rights(nspacl, 'n', nspowner) || ' -- '
       || coalesce(obj_description(oid, 'pg_namespace'), '')
  FROM pg_namespace WHERE nspname = 'idempotency'
 UNION ALL
SELECT 'routine ' || o.name || ' owner ' || p.proowner::regrole || ' rights ' || pg_temp.rights(p.proacl, 'f', p.proowner) || ' -- '
       || coalesce(obj_description(p.oid, 'pg_proc'), '') || E'\n'
       || CASE WHEN o.name = 'idempotency.installed()' THEN '' ELSE pg_get_functiondef(p.oid) END
  FROM ours o JOIN pg_proc p ON p.oid = o.oid
 UNION ALL
SELECT format('relation %s kind %s owner %s rights %s options %s %s %s security %s %s -- %s', o.name, c.relkind, c.relowner::regrole,
              pg_temp.rights(c.relacl, 'r', c.relowner), c.reloptions, (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid),
              c.relreplident, c.relrowsecurity, c.relforcerowsecurity, obj_description(c.oid, 'pg_class'))
       || CASE c.relkind WHEN 'v' THEN E'\n' || pg_get_viewdef(c.oid) WHEN 'i' THEN E'\n' || pg_get_indexdef(c.oid)
               WHEN 'c' THEN ' -- ' || coalesce(obj_description(c.reltype, 'pg_type'), '') ELSE '' END
  FROM ours o JOIN pg_class c ON c.oid = o.oid
 UNION ALL
SELECT format('column %s %s %s %s %s not null %s storage %s collation %s default %s rights %s -- %s', o.name,
              row_number() OVER (PARTITION BY o.oid ORDER BY a.attnum), a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated,
              a.attnotnull, a.attstorage, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid),
              pg_temp.rights(a.attacl, 'c', 10), col_description(o.oid, a.attnum))
  FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE o.class = 'pg_class'::regclass
 UNION ALL
SELECT format('constraint %s %s %s %s', o.name, c.conname, pg_get_constraintdef(c.oid), c.convalidated)
  FROM ours o JOIN pg_constraint c ON c.conrelid = o.oid
 UNION ALL
SELECT format('trigger %s %s', pg_get_triggerdef(t.oid), t.tgenabled)
  FROM ours o JOIN pg_trigger t ON t.tgrelid = o.oid WHERE NOT t.tgisinternal
 UNION ALL
SELECT format('rule %s', pg_get_ruledef(r.oid)) FROM ours o JOIN pg_rewrite r ON r.ev_class = o.oid AND r.rulename <> '_RETURN'
 UNION ALL
SELECT format('policy %s %s', p.polname, o.name) FROM ours o JOIN pg_policy p ON p.polrelid = o.oid
 UNION ALL
SELECT format('of the extension: %s %s', pg_describe_object(d.classid, d.objid, 0), i.initprivs IS NOT NULL) FROM pg_depend d
  LEFT JOIN pg_init_privs i ON i.objoid = d.objid AND i.classoid = d.classid AND i.objsubid = 0
 WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idempotency')
 UNION ALL
SELECT format('dumped %s', c.c::regclass) FROM pg_extension e, unnest(e.extconfig) c WHERE e.extname = 'idempotency'
) x (line) ORDER BY line COLLATE "C";
