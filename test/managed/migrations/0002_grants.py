from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_idempotency")]
    operations = [migrations.RunSQL("CREATE TABLE orders (id integer); SELECT idem_grant('managed_app')")]
