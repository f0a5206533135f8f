"""A consumer of a queue that takes messages in batches, and applies each once.

The batch is one transaction. If a message in it fails, each is applied alone, so one bad message keeps back no other.
"""

from psycopg import Error

SCHEMA = "CREATE TABLE stock (item text PRIMARY KEY, n integer NOT NULL CHECK (n >= 0))"
# Conflicts, lost connections, a full server, and one that stops. psycopg's classes of errors have others among them.
NOT_ITS_FAULT = ("40", "08", "53", "57P")


def apply(connection, messages):
    """In one transaction: the messages that are new, by their ids. Returns how many."""
    with connection.transaction():
        by_id = {one["id"]: one for one in messages}
        found = connection.execute("SELECT idem_once_each(%s::text[], scope => 'stock')", (list(by_id),))
        new = [by_id[id] for (id,) in found]
        with connection.cursor() as cursor:
            cursor.executemany("UPDATE stock SET n = n - %s WHERE item = %s", [(one["n"], one["item"]) for one in new])
    return len(new)


def take(connection, messages):
    """Returns the messages that failed, with their errors. The caller acknowledges all others, whether new or not."""
    try:
        apply(connection, messages)
        return []
    except Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(NOT_ITS_FAULT):
            raise  # the broker delivers the batch again
        if len(messages) == 1:
            return [(messages[0], str(error))]
        return [failed for one in messages for failed in take(connection, [one])]
