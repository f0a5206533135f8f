# Databases in encodings other than UTF-8: keys are compared and bodies kept unchanged, and equal
# requests have equal fingerprints in every database.
use Idem;

my $node = new_node('main', -extension => 0);
my @encodings = qw(UTF8 LATIN1 EUC_JP SQL_ASCII);
my %name = map { $_ => 'in_' . lc } @encodings;

# What a client sends, always in UTF-8. An SQL_ASCII database takes the bytes as they come.
my $umlauts = "M\xc3\xbcller";
my $kana = "\xe3\x81\x82\xe3\x82\xbd";

sub create_database ($encoding)
{
	$node->safe_psql('postgres', "CREATE DATABASE $name{$encoding} ENCODING '$encoding'"
		  . " LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	$node->safe_psql($name{$encoding}, 'CREATE EXTENSION idempotency');
	return;
}

sub connect_to ($encoding)
{
	my $session = session($node, $name{$encoding});
	ask($session, q(SET client_encoding = 'UTF8')) if $encoding ne 'SQL_ASCII';
	return $session;
}

sub replay_of ($session, $key, $body)
{
	return ask($session,
		"SELECT outcome, key, $body FROM " . invocation('idem_begin', key => $key));
}

sub keeps_key_and_bodies ($encoding, $key)
{
	my $session = connect_to($encoding);
	my $complete = sub {
		my ($key, $body) = @_;
		ask($session, 'BEGIN');
		is(outcome_in($session, $key), 'execute', "$encoding: begun");
		is( ask($session,
				'SELECT ' . invocation('idem_complete', key => $key, status_code => 200, body => \$body)),
			't', "$encoding: completed");
		ask($session, 'COMMIT');
	};

	$complete->($key, "'$key'::text");
	is(replay_of($session, $key, 'convert_from(body, getdatabaseencoding())'),
		"replay|$key|$key", "$encoding: the key and a text come back as they were");
	is(replay_of($session, $key, "body = '$key'::text::bytea"),
		"replay|$key|t", "$encoding: byte for byte");
	$complete->("$key-binary", q('\\x00ff80c3fc'::bytea));
	is(replay_of($session, "$key-binary", 'body'),
		"replay|$key-binary|\\x00ff80c3fc", "$encoding: bytes that are no text, too");
	$complete->("$key-json", qq('{"b": "$key", "a": 1}'::jsonb));
	is(replay_of($session, "$key-json", 'convert_from(body, getdatabaseencoding())'),
		qq(replay|$key-json|{"a": 1, "b": "$key"}), "$encoding: and JSON");
	is(outcome_in($session, "$key-"), 'execute', "$encoding: another key is another key");
	$session->quit;
	return;
}

sub fingerprint ($encoding, $arguments)
{
	my $session = connect_to($encoding);
	my $fingerprint = ask($session, "SELECT idem_fingerprint($arguments)");
	$session->quit;
	return $fingerprint;
}

sub same_fingerprints ($what, $arguments, @encodings)
{
	my $expected = fingerprint('UTF8', $arguments);

	like($expected, qr/^\\x[0-9a-f]{64}$/, "$what has a fingerprint");
	is(fingerprint($_, $arguments), $expected, "$what: the same in $_") foreach @encodings;
	return;
}

create_database($_) foreach @encodings;
keeps_key_and_bodies($_, $umlauts) foreach qw(UTF8 LATIN1 SQL_ASCII);
keeps_key_and_bodies($_, $kana) foreach qw(UTF8 EUC_JP SQL_ASCII);

# Where the server takes any bytes, each byte is a character. Bytes that are not UTF-8 have no
# fingerprint.
{
	my ($utf8, $ascii) = map { connect_to($_) } qw(UTF8 SQL_ASCII);
	my $call = q{SELECT outcome FROM idem_begin(repeat(%s, %d), scope => 'lengths')};
	is(ask($utf8, sprintf $call, q{chr(252)}, 255), 'execute', 'UTF8: 255 characters');
	is(ask($ascii, sprintf $call, q{E'\xc3\xbc'}, 127), 'execute', 'SQL_ASCII: 254 bytes');
	is(ask($ascii, sprintf $call, q{E'\xc3\xbc'}, 128), '22023', 'SQL_ASCII: 256 are too many');
	is(ask($ascii, q{SELECT outcome FROM idem_begin('any', to_jsonb(E'\xff'::text))}), '22021',
		'SQL_ASCII: a request of other bytes');
	is(ask($ascii, q{SELECT outcome FROM idem_begin('any', fingerprint => '\xff')}), 'execute',
		'... is known by a fingerprint of its own');
	is(ask($ascii, q{SELECT idem_policy_set('any', exclude_fields => ARRAY[E'\xff'])}), '22021',
		'... and so is a field to exclude');
	$_->quit foreach $utf8, $ascii;
}

same_fingerprints('plain JSON', q('{"b": 1.50, "a": [true, null, "x"]}'),
	qw(LATIN1 EUC_JP SQL_ASCII));
same_fingerprints('umlauts', qq('{"$umlauts": "$umlauts", "z": 1}'), qw(LATIN1 SQL_ASCII));
same_fingerprints('kana', qq('{"$kana": "$kana", "z": 1}'), qw(EUC_JP SQL_ASCII));
# Names are sorted by their characters, not by their bytes in the database's encoding. The larger
# ones are counted before they are written.
my @katakana = map { "\xe3\x82$_" } "\xa2", "\xbd", "\x93";
my $names = join ',', map { "'$_', 1" } 'z', $kana, @katakana, "\xe4\xba\x9c", "\xef\xbd\xb1", "\xc2\xb0";
same_fingerprints('order of names', "jsonb_build_object($names)", qw(EUC_JP SQL_ASCII));
same_fingerprints('a large text', qq(jsonb_build_object('$umlauts', repeat('$umlauts"', 500000), 'a', 1)),
	qw(LATIN1 SQL_ASCII));
same_fingerprints('method and path', qq('{}', 'POST', '/$umlauts'), qw(LATIN1 SQL_ASCII));
is( fingerprint('LATIN1', qq('{"$umlauts": 1, "a": 1}', exclude => '{$umlauts}')),
	fingerprint('UTF8', q('{"a": 1}')),
	'a field to exclude is found in LATIN1');
is( fingerprint('LATIN1', qq('{"$umlauts": {"$umlauts": 1}, "a": 1}', exclude => '{\$.$umlauts.$umlauts}')),
	fingerprint('UTF8', qq('{"a": 1, "$umlauts": {}}')),
	'and a path');

# SQL_ASCII accepts bytes that are not UTF-8. A canonical form must be UTF-8.
my $ascii = connect_to('SQL_ASCII');
is(outcome_in($ascii, "\xfc"), 'execute', 'a key may be any bytes there');
is(outcome_in($ascii, "\xfc-2", request => qq({"a": "\xfc"})), '22021', 'a request may not');
is(outcome_in($ascii, "\xfc-2"), 'execute', 'and its key is not taken');
$ascii->quit;

# The length of a key counts characters of the database's encoding.
foreach my $encoding (qw(UTF8 LATIN1))
{
	my $session = connect_to($encoding);
	is(outcome_in($session, "\xc3\xbc" x 255), 'execute', "$encoding: 255 characters are a key");
	is(outcome_in($session, "\xc3\xbc" x 256), '22023', "$encoding: 256 are not");
	is(ask($session, "SELECT idem_key('$umlauts:', 'b')"), "$umlauts\\::b", "$encoding: idem_key");
	is(ask($session, qq(SELECT idem_parse_key('"abc"'))), 'abc', "$encoding: idem_parse_key");
	$session->quit;
}

# One record, two clients with different encodings.
my $utf8 = connect_to('LATIN1');
my $latin1 = connect_to('LATIN1');
ask($latin1, q(SET client_encoding = 'LATIN1'));
is(outcome_in($utf8, "caf\xc3\xa9"), 'execute', 'begun by a client that speaks UTF-8');
is(outcome_in($latin1, "caf\xe9"), 'in_progress', 'the same key for one that speaks LATIN1');
$_->quit foreach $utf8, $latin1;

$node->stop;
done_testing();
