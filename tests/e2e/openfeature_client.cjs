/* A program with OpenFeature's own SDKs and OFREP providers, for test_openfeature_providers.py.
 *
 *   NODE_PATH=FOLDER node openfeature_client.cjs BASE_URL CALLER
 *
 * Reads questions, a JSON array a line, and prints an answer for each: ["server", TYPE, KEY, DEFAULT, CONTEXT] asks the server
 * SDK (one request each), ["web", TYPE, KEY, DEFAULT] the web SDK, which has fetched all flags for CALLER before. Lines
 * {"changed": [...]} come in between, when the stream of events has told the web provider that flags have changed. */
'use strict';
const readline = require('node:readline');
const server = require('@openfeature/server-sdk');
const web = require('@openfeature/web-sdk');
const { OFREPProvider } = require('@openfeature/ofrep-provider');
const { OFREPWebProvider } = require('@openfeature/ofrep-web-provider');

const [baseUrl, caller] = process.argv.slice(2);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

/* What browsers have, as far as the provider uses it: Node 20 has none. */
globalThis.EventSource ??= class {
    constructor(url) {
        this.stop = new AbortController();
        this.readyState = 0;
        this.read(url).catch(() => this.onerror?.({}));
    }
    addEventListener(type, listener) {
        this['on' + type] = listener;
    }
    close() {
        this.readyState = 2;
        this.stop.abort();
    }
    async read(url) {
        const answer = await fetch(url, { headers: { Accept: 'text/event-stream' }, signal: this.stop.signal });
        this.readyState = 1;
        this.onopen?.({});
        let text = '';
        for await (const bytes of answer.body) {
            text += Buffer.from(bytes).toString();
            for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
                const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data: '));
                if (data.length) this.onmessage?.({ data: data.map((line) => line.slice(6)).join('\n') });
            }
        }
    }
};

async function main() {
    const methods = { boolean: 'getBooleanDetails', string: 'getStringDetails', number: 'getNumberDetails', object: 'getObjectDetails' };
    await server.OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl }));
    await web.OpenFeature.setContext({ targetingKey: caller });
    await web.OpenFeature.setProviderAndWait(new OFREPWebProvider({ baseUrl, pollInterval: 0 }));
    const clients = { server: server.OpenFeature.getClient(), web: web.OpenFeature.getClient() };
    clients.web.addHandler(web.ProviderEvents.ConfigurationChanged, (event) => say({ changed: event.flagsChanged ?? [] }));
    say('ready');
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [which, type, key, otherwise, context] = JSON.parse(line);
        const { value, variant, reason, errorCode } = await clients[which][methods[type]](key, otherwise, context);
        say({ value, variant, reason, errorCode });
    }
    process.exit(0);
}
main().catch((error) => {
    console.error(error);
    process.exit(1);
});
