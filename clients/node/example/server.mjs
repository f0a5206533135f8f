// The server of clients/conformance/README.md: on Express, or on the framework that SERVER names.
const { serve } = await import(`./on_${process.env.SERVER || 'express'}.mjs`);
await serve(Number(process.env.PORT), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
console.log('ready');
