-- Counts of the messages and bytes of a thread, and the time of its last message, updated with each write. Equivalent to counts_sqlite.sql.

-- Inserted rows are counted once for each statement. An update of the thread for each row would leave one
-- dead version of the thread per row, and each later update reads all of these versions. An update that joins the
-- threads with the counts would read all threads: a session keeps the plan that it made when the table was small.
CREATE FUNCTION holdpoint_messages_counted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT thread_id, count(*) AS rows, sum(coalesce(octet_length(content), 0)) AS bytes, max(created_at) AS at
        FROM added GROUP BY thread_id ORDER BY thread_id
    LOOP
        UPDATE threads SET messages = messages + counted.rows, bytes = bytes + counted.bytes,
            updated_at = greatest(updated_at, counted.at)
        WHERE thread_id = counted.thread_id;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_message_recounted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE threads
    SET bytes = bytes + coalesce(octet_length(NEW.content), 0) - coalesce(octet_length(OLD.content), 0)
    WHERE thread_id = NEW.thread_id;
    RETURN NULL;
END $$;

-- A step counts once it is complete or interrupted, not while it streams.
CREATE FUNCTION holdpoint_step_counted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE threads
    SET bytes = bytes + octet_length(NEW.parts) + coalesce(octet_length(NEW.provider_state), 0)
        - CASE OLD.status WHEN 'streaming' THEN 0
          ELSE octet_length(OLD.parts) + coalesce(octet_length(OLD.provider_state), 0) END
    WHERE thread_id = (SELECT thread_id FROM messages WHERE message_id = NEW.message_id);
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_calls_counted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    counted record;
BEGIN
    FOR counted IN
        SELECT thread_id, sum(octet_length(arguments) + coalesce(octet_length(model_arguments), 0)
            + coalesce(octet_length(validated_inputs), 0)
            + coalesce(octet_length(preview), 0) + coalesce(octet_length(validated_preview), 0)
            + coalesce(octet_length(output), 0) + coalesce(octet_length(result), 0)) AS bytes
        FROM added GROUP BY thread_id ORDER BY thread_id
    LOOP
        UPDATE threads SET bytes = bytes + counted.bytes WHERE thread_id = counted.thread_id;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_call_recounted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE threads
    SET bytes = bytes + octet_length(NEW.arguments) + coalesce(octet_length(NEW.model_arguments), 0)
            + coalesce(octet_length(NEW.validated_inputs), 0)
        + coalesce(octet_length(NEW.preview), 0) + coalesce(octet_length(NEW.validated_preview), 0)
        + coalesce(octet_length(NEW.output), 0) + coalesce(octet_length(NEW.result), 0)
        - (octet_length(OLD.arguments) + coalesce(octet_length(OLD.model_arguments), 0)
            + coalesce(octet_length(OLD.validated_inputs), 0)
        + coalesce(octet_length(OLD.preview), 0) + coalesce(octet_length(OLD.validated_preview), 0)
        + coalesce(octet_length(OLD.output), 0) + coalesce(octet_length(OLD.result), 0))
    WHERE thread_id = NEW.thread_id;
    RETURN NULL;
END $$;

CREATE FUNCTION holdpoint_sent_counted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE threads SET bytes = bytes + octet_length(NEW.text)
    WHERE thread_id = (SELECT thread_id FROM tool_calls WHERE tool_call_id = NEW.tool_call_id);
    RETURN NULL;
END $$;

CREATE TRIGGER messages_counted AFTER INSERT ON messages REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_messages_counted();

CREATE TRIGGER messages_recounted AFTER UPDATE OF content ON messages
    FOR EACH ROW WHEN (OLD.content IS DISTINCT FROM NEW.content) EXECUTE FUNCTION holdpoint_message_recounted();

CREATE TRIGGER message_steps_counted AFTER UPDATE OF status, parts, provider_state ON message_steps
    FOR EACH ROW WHEN (NEW.status <> 'streaming') EXECUTE FUNCTION holdpoint_step_counted();

CREATE TRIGGER tool_calls_counted AFTER INSERT ON tool_calls REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdpoint_calls_counted();

CREATE TRIGGER tool_calls_recounted AFTER UPDATE OF arguments, model_arguments, preview, validated_inputs, validated_preview, output, result
    ON tool_calls
    FOR EACH ROW WHEN (OLD.result IS DISTINCT FROM NEW.result OR OLD.output IS DISTINCT FROM NEW.output
        OR OLD.validated_inputs IS DISTINCT FROM NEW.validated_inputs
        OR OLD.validated_preview IS DISTINCT FROM NEW.validated_preview
        OR OLD.arguments IS DISTINCT FROM NEW.arguments
        OR OLD.model_arguments IS DISTINCT FROM NEW.model_arguments OR OLD.preview IS DISTINCT FROM NEW.preview)
    EXECUTE FUNCTION holdpoint_call_recounted();

CREATE TRIGGER sent_answers_counted AFTER INSERT ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_sent_counted();

CREATE FUNCTION holdpoint_sent_recounted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE threads SET bytes = bytes + octet_length(NEW.text) - octet_length(OLD.text)
    WHERE thread_id = (SELECT thread_id FROM tool_calls WHERE tool_call_id = NEW.tool_call_id);
    RETURN NULL;
END $$;

CREATE TRIGGER sent_answers_recounted AFTER UPDATE OF text ON sent_answers
    FOR EACH ROW EXECUTE FUNCTION holdpoint_sent_recounted();
