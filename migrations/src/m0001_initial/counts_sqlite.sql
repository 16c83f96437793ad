-- Counts of the messages and bytes of a thread, and the time of its last message, updated with each write. Equivalent to counts_postgres.sql.

CREATE TRIGGER messages_counted AFTER INSERT ON messages
BEGIN
    UPDATE threads SET messages = messages + 1, bytes = bytes + coalesce(octet_length(NEW.content), 0),
        updated_at = max(updated_at, NEW.created_at)
    WHERE thread_id = NEW.thread_id;
END;

CREATE TRIGGER messages_recounted AFTER UPDATE OF content ON messages WHEN OLD.content IS NOT NEW.content
BEGIN
    UPDATE threads
    SET bytes = bytes + coalesce(octet_length(NEW.content), 0) - coalesce(octet_length(OLD.content), 0)
    WHERE thread_id = NEW.thread_id;
END;

-- A step counts once it is complete or interrupted, not while it streams.
CREATE TRIGGER message_steps_counted AFTER UPDATE OF status, parts, provider_state ON message_steps
WHEN NEW.status <> 'streaming'
BEGIN
    UPDATE threads
    SET bytes = bytes + octet_length(NEW.parts) + coalesce(octet_length(NEW.provider_state), 0)
        - CASE OLD.status WHEN 'streaming' THEN 0
          ELSE octet_length(OLD.parts) + coalesce(octet_length(OLD.provider_state), 0) END
    WHERE thread_id = (SELECT thread_id FROM messages WHERE message_id = NEW.message_id);
END;

CREATE TRIGGER tool_calls_counted AFTER INSERT ON tool_calls
BEGIN
    UPDATE threads
    SET bytes = bytes + octet_length(NEW.arguments) + coalesce(octet_length(NEW.model_arguments), 0)
            + coalesce(octet_length(NEW.validated_inputs), 0)
        + coalesce(octet_length(NEW.preview), 0) + coalesce(octet_length(NEW.validated_preview), 0)
        + coalesce(octet_length(NEW.output), 0) + coalesce(octet_length(NEW.result), 0)
    WHERE thread_id = NEW.thread_id;
END;

CREATE TRIGGER tool_calls_recounted AFTER UPDATE OF arguments, model_arguments, preview, validated_inputs, validated_preview, output, result
    ON tool_calls
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
END;

CREATE TRIGGER sent_answers_counted AFTER INSERT ON sent_answers
BEGIN
    UPDATE threads SET bytes = bytes + octet_length(NEW.text)
    WHERE thread_id = (SELECT thread_id FROM tool_calls WHERE tool_call_id = NEW.tool_call_id);
END;

CREATE TRIGGER sent_answers_recounted AFTER UPDATE OF text ON sent_answers
BEGIN
    UPDATE threads SET bytes = bytes + octet_length(NEW.text) - octet_length(OLD.text)
    WHERE thread_id = (SELECT thread_id FROM tool_calls WHERE tool_call_id = NEW.tool_call_id);
END;
