-- Each session waits for a leased claim of its own key, and notes when it was told.
SELECT outcome FROM idem_begin('w' || :client_id, scope => 'bench', wait => '1 hour');
INSERT INTO bench.told VALUES ('w' || :client_id, clock_timestamp());
