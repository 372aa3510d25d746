import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.common.client.json.minimaljson.Json;
import com.espertech.esper.common.client.json.minimaljson.JsonArray;
import com.espertech.esper.common.client.json.minimaljson.JsonObject;
import com.espertech.esper.common.client.json.minimaljson.JsonValue;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * The statements of one run in one Esper runtime: columns in, answers out.
 *
 * <p>Its clock counts half units of ours. A row of time t comes at 2 t, and an answer for t is asked for at 2 t + 1:
 * behind all rows of t, and behind the end of every row that has left (t - range, t]. So nothing ever happens at the
 * same instant of Esper's clock that must happen in an order. Periods of EPL count from a statement's first row, ours
 * from zero: so statements over sliding windows are asked for what they hold, at the instants of ours.
 */
public final class EsperJob {
    private final EPRuntime runtime;
    private final Configuration settings;
    private final EPEventService events;
    private long now = Long.MIN_VALUE;
    private boolean answered;

    public static void main(String[] words) throws Exception {
        Path place = Path.of(words[0]);
        JsonObject job = Json.parse(Files.readString(place.resolve("job.json"))).asObject();
        new EsperJob("warm").play(Json.parse(Files.readString(place.resolve("warm.json"))).asObject(), place);
        JsonObject said = new EsperJob("run").play(job, place);
        Files.writeString(place.resolve("said.json"), said.toString());
    }

    private EsperJob(String name) {
        settings = new Configuration();
        settings.getCommon().getTimeSource().setTimeUnit(TimeUnit.MICROSECONDS);
        settings.getRuntime().getThreading().setInternalTimerEnabled(false);
        settings.getRuntime().getExecution().setDisableLocking(true); // one thread sends
        runtime = EPRuntimeProvider.getRuntime(name, settings);
        runtime.initialize();
        events = runtime.getEventService();
        events.clockExternal();
    }

    private JsonObject play(JsonObject job, Path place) throws Exception {
        long begin = System.nanoTime();
        for (JsonValue module : job.get("modules").asArray()) {
            deploy(module.asString());
        }
        for (Rows table : rows(job.get("tables").asArray(), place)) {
            for (int i = 0; i < table.length; i++) {
                events.sendEventObjectArray(table.row(i), table.type);
            }
        }
        JsonArray slides = job.get("slides").asArray(); // of each statement; 0: it says its answers by itself
        EPStatement[] statements = deploy(job.getString("statements", "")).getStatements();
        Answer[] answers = new Answer[statements.length];
        for (int i = 0; i < statements.length; i++) {
            Answer answer = new Answer(statements[i], slides.get(i).asLong());
            answers[i] = answer;
            if (answer.slide == 0) {
                statements[i].addListener((fresh, gone, said, by) -> answer.hear(fresh));
            }
        }
        long ready = System.nanoTime();
        List<Long> took = new ArrayList<>();
        send(rows(job.get("streams").asArray(), place), answers, job.getLong("until", 0), took);
        long end = System.nanoTime();
        JsonObject said = new JsonObject();
        said.add("plan", (ready - begin) / 1e9).add("run", (end - ready) / 1e9).add("seconds", (end - begin) / 1e9);
        JsonArray types = new JsonArray();
        for (int i = 0; i < answers.length; i++) {
            answers[i].write(place.resolve("answer-" + i + ".csv"));
            types.add(answers[i].types());
        }
        JsonArray delays = new JsonArray();
        took.forEach(delays::add);
        return said.add("types", types).add("delays", delays);
    }

    private EPDeployment deploy(String text) throws Exception {
        CompilerArguments with = new CompilerArguments(settings);
        with.getPath().add(runtime.getRuntimePath());
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(text, with);
        return runtime.getDeploymentService().deploy(compiled);
    }

    /** All rows in the order of their times, and between them the instants at which some statement is asked. */
    private void send(List<Rows> streams, Answer[] answers, long until, List<Long> took) {
        long next = Long.MIN_VALUE;
        while (true) {
            Rows first = null;
            for (Rows each : streams) {
                if (each.at < each.length && (first == null || each.time() < first.time())) {
                    first = each;
                }
            }
            long ts = first == null ? until + 1 : first.time();
            if (next == Long.MIN_VALUE) {
                next = following(answers, ts - 1);
            }
            for (; next < ts; next = following(answers, next)) {
                advance(2 * next + 1);
                for (Answer each : answers) {
                    if (each.slide != 0 && next % each.slide == 0) {
                        each.ask();
                    }
                }
            }
            if (first == null) {
                return;
            }
            Object[] row = first.row(first.at++);
            answered = false;
            long begin = System.nanoTime();
            advance(2 * ts);
            events.sendEventObjectArray(row, first.type);
            if (answered) {
                took.add(System.nanoTime() - begin);
            }
        }
    }

    private static long following(Answer[] answers, long ts) {
        long least = Long.MAX_VALUE;
        for (Answer each : answers) {
            if (each.slide != 0) {
                least = Math.min(least, (Math.floorDiv(ts, each.slide) + 1) * each.slide);
            }
        }
        return least;
    }

    private void advance(long to) {
        if (to != now) {
            now = to;
            events.advanceTime(to);
        }
    }

    private static List<Rows> rows(JsonArray described, Path place) throws IOException {
        List<Rows> found = new ArrayList<>();
        for (JsonValue each : described) {
            found.add(new Rows(each.asObject(), place));
        }
        return found;
    }

    /** What a statement said, with the time at which it did. */
    private final class Answer {
        final long slide;
        private final EPStatement statement;
        private final String[] names;
        private final List<Object[]> rows = new ArrayList<>();

        Answer(EPStatement statement, long slide) {
            this.statement = statement;
            this.slide = slide;
            this.names = statement.getEventType().getPropertyNames();
        }

        void hear(EventBean[] fresh) {
            if (fresh == null) {
                return;
            }
            answered = true;
            for (EventBean each : fresh) {
                keep(each);
            }
        }

        void ask() {
            statement.iterator().forEachRemaining(this::keep);
        }

        private void keep(EventBean each) {
            Object[] values = (Object[]) each.getUnderlying();
            Object[] row = new Object[values.length + 1];
            row[0] = Math.floorDiv(now, 2);
            System.arraycopy(values, 0, row, 1, values.length);
            rows.add(row);
        }

        JsonArray types() {
            JsonArray found = new JsonArray();
            found.add(new JsonArray().add("_ts").add("Long"));
            for (String name : names) {
                Class<?> type = statement.getEventType().getPropertyType(name);
                found.add(new JsonArray().add(name).add(type == null ? "null" : type.getSimpleName()));
            }
            return found;
        }

        void write(Path path) throws IOException {
            try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(path))) {
                StringBuilder line = new StringBuilder();
                for (Object[] row : rows) {
                    line.setLength(0);
                    for (Object value : row) {
                        line.append(line.length() == 0 ? "" : ",");
                        if (value instanceof String) {
                            line.append('"').append(((String) value).replace("\"", "\"\"")).append('"');
                        } else {
                            line.append(value == null ? "" : value);
                        }
                    }
                    out.println(line);
                }
            }
        }
    }

    /** Rows of a relation, from a file for each column and one for its nulls. */
    private static final class Rows {
        final String type;
        final int length;
        private final Column[] columns;
        private final ByteBuffer times;
        int at;

        Rows(JsonObject described, Path place) throws IOException {
            type = described.getString("type", "");
            length = described.getInt("rows", 0);
            Path folder = place.resolve(type);
            JsonArray kinds = described.get("columns").asArray();
            columns = new Column[kinds.size()];
            for (int c = 0; c < columns.length; c++) {
                columns[c] = new Column(folder, c, kinds.get(c).asString());
            }
            times = described.getBoolean("timed", false) ? mapped(folder.resolve("times")) : null;
        }

        long time() {
            return times.getLong(8 * at);
        }

        Object[] row(int i) {
            Object[] made = new Object[columns.length];
            for (int c = 0; c < made.length; c++) {
                made[c] = columns[c].value(i);
            }
            return made;
        }
    }

    private static final class Column {
        private final String kind;
        private final ByteBuffer values;
        private final ByteBuffer nulls;
        private final String[] words;

        Column(Path folder, int number, String kind) throws IOException {
            this.kind = kind;
            values = mapped(folder.resolve(number + ".values"));
            Path missing = folder.resolve(number + ".nulls");
            nulls = Files.exists(missing) ? mapped(missing) : null;
            Path named = folder.resolve(number + ".words");
            words = Files.exists(named) ? strings(Json.parse(Files.readString(named)).asArray()) : null;
        }

        Object value(int i) {
            if (nulls != null && nulls.get(i) != 0) {
                return null;
            }
            switch (kind) {
                case "long":
                    return values.getLong(8 * i);
                case "double":
                    return values.getDouble(8 * i);
                case "boolean":
                    return values.get(i) != 0;
                default:
                    return words[values.getInt(4 * i)];
            }
        }

        private static String[] strings(JsonArray given) {
            String[] found = new String[given.size()];
            Arrays.setAll(found, i -> given.get(i).asString());
            return found;
        }
    }

    private static ByteBuffer mapped(Path path) throws IOException {
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ)) {
            return file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()).order(ByteOrder.LITTLE_ENDIAN);
        }
    }
}
