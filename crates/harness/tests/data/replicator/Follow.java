import com.moilioncircle.redis.replicator.RedisReplicator;
import com.moilioncircle.redis.replicator.Replicator;
import com.moilioncircle.redis.replicator.cmd.CommandName;
import com.moilioncircle.redis.replicator.cmd.impl.DefaultCommand;
import com.moilioncircle.redis.replicator.cmd.impl.SetCommand;
import com.moilioncircle.redis.replicator.cmd.parser.DefaultCommandParser;
import com.moilioncircle.redis.replicator.event.Event;
import com.moilioncircle.redis.replicator.rdb.dump.DumpRdbVisitor;
import com.moilioncircle.redis.replicator.rdb.dump.datatype.DumpFunction;
import com.moilioncircle.redis.replicator.rdb.dump.datatype.DumpKeyValuePair;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Follows a server with redis-replicator until the key END is set, then prints "all good".
 *
 * <p>{@code Follow SOURCE TARGET END} carries all of it to the server at the port TARGET: values as RESTORE takes them, then
 * the commands as they come. {@code Follow SOURCE events END} has the library parse both, and prints a count of each event.
 */
public class Follow {
    /** Time for everything: who waits for a program that hangs would hang as well. */
    private static final long TIME_MAX_MS = 120_000;

    public static void main(String[] arguments) throws Exception {
        Thread watch = new Thread(Follow::endInTime);
        watch.setDaemon(true);
        watch.start();
        Replicator replicator = new RedisReplicator("redis://127.0.0.1:" + arguments[0] + "?retryTimeInterval=50");
        replicator.addExceptionListener((of, error, event) -> fail(error));
        if (arguments[1].equals("events")) {
            count(replicator, arguments[2]);
        } else {
            carry(replicator, new Target(Integer.parseInt(arguments[1])), arguments[2]);
        }
        System.out.println("all good");
    }

    private static void endInTime() {
        try {
            Thread.sleep(TIME_MAX_MS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        fail(new IllegalStateException("the last key has not come in " + TIME_MAX_MS + " ms"));
    }

    /** Ends the program: the library would go on after what an event's handler throws. */
    private static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private static void count(Replicator replicator, String end) throws IOException {
        Map<String, Integer> counts = new TreeMap<>();
        replicator.addEventListener((of, event) -> {
            counts.merge(event.getClass().getSimpleName(), 1, Integer::sum);
            if (event instanceof SetCommand set && is(set.getKey(), end)) {
                close(of);
            }
        });
        replicator.open();
        counts.forEach((name, number) -> System.out.println(name + " " + number));
    }

    private static void carry(Replicator replicator, Target target, String end) throws IOException {
        replicator.setRdbVisitor(new DumpRdbVisitor(replicator));
        for (String name : target.commands()) {
            // PING and what the library itself answers stay as they are.
            if (!name.equals("PING") && !name.equals("REPLCONF")) {
                replicator.addCommandParser(CommandName.name(name), new DefaultCommandParser());
            }
        }
        replicator.addEventListener((of, event) -> {
            try {
                if (target.take(event, end)) {
                    close(of);
                }
            } catch (IOException error) {
                // The library would take it for one of the source's, and ask that again.
                fail(error);
            }
        });
        replicator.open();
    }

    private static void close(Replicator replicator) {
        try {
            replicator.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static boolean is(byte[] bytes, String text) {
        return new String(bytes, StandardCharsets.ISO_8859_1).equalsIgnoreCase(text);
    }

    /** A connection to the server that is to have what the source has. */
    private static final class Target {
        private final InputStream input;
        private final OutputStream output;
        private long database;

        Target(int port) throws IOException {
            Socket socket = new Socket("127.0.0.1", port);
            socket.setTcpNoDelay(true);
            input = new BufferedInputStream(socket.getInputStream());
            output = new BufferedOutputStream(socket.getOutputStream());
        }

        /** Returns the names of all commands that the server has. */
        List<String> commands() throws IOException {
            List<String> names = new ArrayList<>();
            for (Object name : (Object[]) ask(bytes("COMMAND"), bytes("LIST"))) {
                names.add(new String((byte[]) name, StandardCharsets.ISO_8859_1).toUpperCase());
            }
            return names;
        }

        /** Does what an event says; returns whether it sets the key {@code end}. */
        boolean take(Event event, String end) throws IOException {
            if (event instanceof DumpFunction function) {
                ask(bytes("FUNCTION"), bytes("RESTORE"), function.getSerialized());
            } else if (event instanceof DumpKeyValuePair pair) {
                if (pair.getDb().getDbNumber() != database) {
                    database = pair.getDb().getDbNumber();
                    ask(bytes("SELECT"), bytes(Long.toString(database)));
                }
                Long until = pair.getExpiredMs();
                ask(bytes("RESTORE"), pair.getKey(), bytes(Long.toString(until == null ? 0 : until)), pair.getValue(),
                        bytes("ABSTTL"));
            } else if (event instanceof DefaultCommand command) {
                byte[][] words = new byte[command.getArgs().length + 1][];
                words[0] = command.getCommand();
                System.arraycopy(command.getArgs(), 0, words, 1, command.getArgs().length);
                ask(words);
                return is(words[0], "SET") && is(words[1], end);
            }
            return false;
        }

        /** Sends a command and returns what is answered: a number, bytes, null or a list; an error is thrown. */
        private Object ask(byte[]... words) throws IOException {
            output.write(bytes("*" + words.length + "\r\n"));
            for (byte[] word : words) {
                output.write(bytes("$" + word.length + "\r\n"));
                output.write(word);
                output.write(bytes("\r\n"));
            }
            output.flush();
            Object reply = read();
            if (reply instanceof IOException error) {
                StringBuilder shown = new StringBuilder();
                for (byte[] word : words) {
                    shown.append(' ').append(new String(word, StandardCharsets.ISO_8859_1));
                }
                throw new IOException(error.getMessage() + ", to" + shown);
            }
            return reply;
        }

        private Object read() throws IOException {
            String line = line();
            String rest = line.substring(1);
            switch (line.charAt(0)) {
                case '+':
                    return bytes(rest);
                case '-':
                    return new IOException(rest);
                case ':':
                    return Long.parseLong(rest);
                case '$':
                    if (rest.equals("-1")) {
                        return null;
                    }
                    byte[] text = input.readNBytes(Integer.parseInt(rest));
                    line();
                    return text;
                case '*':
                    if (rest.equals("-1")) {
                        return null;
                    }
                    Object[] elements = new Object[Integer.parseInt(rest)];
                    for (int at = 0; at < elements.length; at++) {
                        elements[at] = read();
                    }
                    return elements;
                default:
                    throw new IOException("no reply: " + line);
            }
        }

        private String line() throws IOException {
            StringBuilder line = new StringBuilder();
            for (int read = input.read(); read != '\n'; read = input.read()) {
                if (read < 0) {
                    throw new IOException("the target has closed the connection");
                }
                line.append((char) read);
            }
            return line.substring(0, line.length() - 1);
        }

        private static byte[] bytes(String text) {
            return text.getBytes(StandardCharsets.ISO_8859_1);
        }
    }
}
